//go:build !race

package front

const underRace = false
