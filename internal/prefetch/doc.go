// Package prefetch asks the processor for memory that is about to be needed, which another
// processor has written or which is in no cache, so that it comes while something else is
// worked at.
package prefetch
