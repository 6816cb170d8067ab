// Package pyverbs runs the tests of rdma-core's Python bindings, as the distribution
// ships them, against the daemon, and compares the result of each with that of the
// kernel's soft-RoCE in soft-roce-6.1.tsv: what passes there must pass here, nothing
// may fail or hang, and what passes here only is ahead. Nothing here is imported.
package pyverbs
