//go:build race

package front

// underRace makes the daemon one that the race detector watches.
const underRace = true
