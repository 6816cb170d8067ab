// Package report prints the results of a run: tables for people and JSON for
// programs. It owns the two forms and the histogram behind latencies. It counts
// nothing itself: the workload engine fills a [Run] and hands it over.
//
// Both forms are deterministic: the same Run gives the same bytes. Nodes, flows and
// expectations keep the order of the Run; everything inside them is sorted.
package report
