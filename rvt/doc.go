// Package rvt is the device: it owns the verbs objects, finds the QP that a packet is
// for, decides which QP sends next, keeps the timers, and collects completions and
// events. It plays the part of the kernel's rdmavt core.
//
// A [Device] has one owner at a time and is not safe for concurrent use. It does no
// I/O and reads no clock. The owner feeds it and drives it:
//
//	d.Receive(now, path, packet)   for each packet of a burst
//	d.Expire(now)                  when Deadline has come
//	d.Commit()                     memory writes, then completions become visible
//	more := d.Emit(now, out, n)    packets to send, payload as memory segments
//	...                            the owner fetches the payload (out.Gather)
//	d.Commit()                     completions of what has been handed over
//	d.PollEvents(dst)              asynchronous events and CQ notifications
//
// Calls that programs make (create, modify, post) commit by themselves.
package rvt
