// Package nstest lets tests run in a network namespace of their own, with or without root.
package nstest
