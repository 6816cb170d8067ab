// Package front runs unmodified programs against the daemon: those of the distribution
// and small ones in C, in progs, for what is easy to get wrong between a program and
// its device. Nothing here is imported; the tests build the command and use it as a
// user does.
package front
