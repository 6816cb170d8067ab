package campaign

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/vtime"
)

// faultKind is what a fault does.
type faultKind uint8

const (
	faultPartition faultKind = iota // for a while
	faultPort                       // port down for a while
	faultPause                      // receiver of a flow hangs for a while
	faultErr                        // a QP is moved to ERR
	faultSQD                        // a QP is moved to SQD and back
	numFaults
)

var faultNames = [numFaults]string{"partition", "port down", "pause receiver", "modify to ERR", "modify to SQD"}

// fault happens at an instant and, where that makes sense, ends at another.
type fault struct {
	kind      faultKind
	at, until time.Duration
	a, b      int // nodes
	flow, qp  int
	server    bool
}

func (f fault) String() string {
	return fmt.Sprintf("%s at %v until %v (nodes %d %d, flow %d qp %d server %v)", faultNames[f.kind], f.at, f.until, f.a, f.b, f.flow, f.qp, f.server)
}

func drawFaults(r *rand.Rand, p *plan) (list []fault) {
	if r.IntN(2) == 0 {
		return nil
	}
	for range 1 + r.IntN(3) {
		// Most of the traffic is over after a few milliseconds.
		at := time.Duration(r.Int64N(int64(min(p.healAt, pick(r, 100*time.Microsecond, 5*time.Millisecond, p.healAt)))))
		f := fault{kind: faultKind(r.IntN(int(numFaults))), at: at, until: at + time.Duration(r.Int64N(int64(p.healAt-at)+1)),
			a: r.IntN(len(p.nodes)), b: r.IntN(len(p.nodes)), flow: r.IntN(len(p.flows)), server: r.IntN(2) == 0}
		f.qp = r.IntN(p.flows[f.flow].spec.QPs)
		if f.kind == faultPause && !p.flows[f.flow].spec.Bidirectional {
			f.server = true
		}
		list = append(list, f)
	}
	return list
}

// schedule arranges for a fault to happen.
func (f fault) schedule(w *sim.World, flows []*sim.Flow) {
	start, end := vtime.Time(f.at), vtime.Time(f.until)
	a, b := w.Nodes()[f.a], w.Nodes()[f.b]
	fl := flows[f.flow]
	n, e := fl.ClientNode, fl.Client
	if f.server {
		n, e = fl.ServerNode, fl.Server
	}
	q := e.QPs()[f.qp]
	switch f.kind {
	case faultPartition:
		w.At(start, func(vtime.Time) { w.Partition(a, b, true) })
		w.At(end, func(vtime.Time) { w.Partition(a, b, false) })
	case faultPort:
		w.At(start, func(vtime.Time) { w.SetPort(a, false) })
		w.At(end, func(vtime.Time) { w.SetPort(a, true) })
	case faultPause:
		w.At(start, func(vtime.Time) { e.Pause() })
		w.At(end, func(vtime.Time) { e.Resume(); w.Touch(n) })
	case faultErr:
		w.At(start, func(vtime.Time) {
			if err := w.ModifyToError(n, q); err != nil {
				panic(err)
			}
		})
	case faultSQD:
		w.At(start, func(vtime.Time) { w.Modify(n, q, ib.StateRTS, ib.StateSQD) })
		w.At(end, func(vtime.Time) { w.Modify(n, q, ib.StateSQD, ib.StateRTS) })
	}
}
