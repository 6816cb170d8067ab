// Package fdspace decides where the descriptors of an engine lie in the table of its
// process. A daemon's table is its own. An engine inside a program shares the table with
// the program, which may count its descriptors or close all that it did not open: there
// they move to high numbers, and whoever watches the program's calls is told of them.
package fdspace
