// Package topology reads the file that describes a run: nodes, the network between
// them, traffic, faults and what is expected of all that. One schema serves the
// commands run, up and sim.
//
// [Load] and [Parse] return a [File] in which every default is filled in and every
// name is resolved, or [Problems]: all that is wrong with the file, each with line,
// column, what was found and what was expected. The schema is data (the object
// tables in schema_*.go); decoding, the unknown-key check and the reference manual
// ([Reference]) all read the same tables.
//
// The package owns the file format and nothing else. It opens no sockets and knows
// no engine; it may import ib for the vocabulary.
package topology
