package node

import "time"

// Doze is a limit for Config.Doze: short for a thread that others keep from the processor for
// milliseconds anyway, long beside the two wake-ups that it costs.
const Doze = 250 * time.Microsecond

// dozes decides whether a poll, which found something to do or did not, is to sleep for it. The
// owner calls it. was is for doze.
func (n *Node) dozes(worked bool) (dozes bool, was uint32) {
	if n.cfg.Doze <= 0 || !canDoze || !n.crowd.polled(n.passedAt, worked) {
		return false, 0
	}
	n.bed.sleepers.Add(1) // before the mutex is given up: whoever has it next wakes us
	return true, n.bed.turns.Load()
}

// doze sleeps until somebody has found something to do. The background goroutine drives
// meanwhile, and is woken by packets.
func (n *Node) doze(was uint32) {
	n.handOver()
	n.bed.sleep(was, n.cfg.Doze)
	n.bed.sleepers.Add(-1)
	if n.mu.TryLock() {
		n.crowd.woke(n.now())
		n.unlock()
	}
}
