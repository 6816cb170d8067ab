// Package hugepages asks the kernel to back this process's memory by huge pages.
//
// A world of many nodes touches its memory in no order that a processor could foresee. With
// pages of 4 KiB nearly every access that misses the caches misses the TLB as well, and in a
// virtual machine the walk that follows costs more than the miss. Go's runtime asks for huge
// pages on no system whose policy is "madvise", which is Debian's.
package hugepages
