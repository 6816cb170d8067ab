// Package spec owns the specification of the device: numbered requirements (the
// Markdown files beside this one), scenario scripts that show them
// (scenarios/<area>/*.txt), and the interpreter that runs the scripts.
//
// A script is a list of directives, each followed by "----" and what it prints. The
// interpreter has a small world of its own: any number of devices, and a wire whose
// packets a script can watch, step through, lose, repeat, reorder and make up. Time is
// virtual. The same script prints the same text everywhere.
//
// The package may not know files, tests or the network: the test beside it reads the
// scripts. An [Interp] has one owner and is not safe for concurrent use.
package spec
