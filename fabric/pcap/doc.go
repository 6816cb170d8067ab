// Package pcap writes RoCE v2 traffic to pcapng files and reads it from pcap and
// pcapng files.
//
// [Writer] is a fabric.Sink: it puts the Ethernet, IP and UDP headers that a
// datagram's path describes in front of it. What it writes depends on its input
// alone (no clock, no host name), so captures of a virtual-time run are byte-stable.
//
// [Reader] yields the RoCE v2 packets of a capture, by UDP destination port, counts
// what it skips, and reports a broken file with its name and the packet's number. It
// makes no judgement about what is inside the UDP datagram.
package pcap
