package replay

import (
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Result is what the replay of one capture found.
type Result struct {
	Name     string   `json:"name"`
	Packets  int      `json:"packets"`
	Problems []string `json:"problems,omitempty"` // of the capture itself
	// NotPlayed says why the conversation was only decoded, empty if it was played.
	NotPlayed string `json:"not_played,omitempty"`
	Parts     []Part `json:"parts,omitempty"`
}

// Part is one side played by our device.
type Part struct {
	Role      string `json:"role"` // responder or requester
	Fed       int    `json:"packets_fed"`
	Compared  int    `json:"packets_compared"`
	Completed int    `json:"completions_compared"`
	Diffs     []Diff `json:"differences,omitempty"`
}

// Diff is one difference between our device and the real one.
type Diff struct {
	Where  string `json:"where"`
	Field  string `json:"field"`
	Ours   string `json:"ours"`
	Theirs string `json:"theirs"`
	// Why names the choice of the profile that explains it; empty is a failure.
	Why string `json:"explained_by,omitempty"`
}

// OK reports whether every difference is explained.
func (r *Result) OK() bool { return len(r.Problems) == 0 && r.Unexplained() == 0 }

// Unexplained counts the differences without an explanation.
func (r *Result) Unexplained() int {
	n := 0
	for _, p := range r.Parts {
		for _, d := range p.Diffs {
			if d.Why == "" {
				n++
			}
		}
	}
	return n
}

// Explained counts the differences that the profile explains.
func (r *Result) Explained() int {
	n := 0
	for _, p := range r.Parts {
		n += len(p.Diffs)
	}
	return n - r.Unexplained()
}

// Run replays the capture at path under profile prof. flows may lack an entry for it:
// then its packets are only decoded and checked.
func Run(path string, flows map[string]Flow, prof qp.Profile) (*Result, error) {
	c, err := readCapture(path)
	if err != nil {
		return nil, err
	}
	r := &Result{Name: c.name, Packets: len(c.frames), Problems: c.bad}
	flow, ok := flows[c.name]
	switch {
	case !ok:
		r.NotPlayed = ErrNoFlow.Error()
		return r, nil
	case len(c.bad) > 0:
		r.NotPlayed = "the capture has damaged packets"
		return r, nil
	}
	for _, client := range []bool{false, true} {
		part, err := playPart(c, &flow, client, prof)
		if err != nil {
			return nil, fmt.Errorf("replay: %s: %w", c.name, err)
		}
		r.Parts = append(r.Parts, *part)
	}
	return r, nil
}

// playPart plays one side and compares.
func playPart(c *capture, f *Flow, client bool, prof qp.Profile) (*Part, error) {
	cl, sv := c.ends()
	self, peer, role := sv, cl, "responder"
	if client {
		self, peer, role = cl, sv, "requester"
	}
	p, err := newPlayer(f, client, self, peer, prof)
	if err != nil {
		return nil, err
	}
	part := &Part{Role: role}
	fed := c.from(peer)
	if p.refused == nil {
		if err := p.play(fed, c.from(self)); err != nil {
			return nil, err
		}
		part.Fed = len(fed)
	}
	cmp := comparison{player: p, prof: prof, part: part}
	cmp.packets(c.from(self))
	cmp.completions()
	cmp.memory()
	return part, nil
}

// play runs the side in virtual time: its program's actions, the packets of the
// capture, and its own timers, in order.
func (p *player) play(fed, own []frame) error {
	if p.flow.Setup.ServerGone && !p.client {
		if err := p.dev.DestroyQP(0, p.qp); err != nil {
			return err
		}
		p.qp = nil
	} else if err := p.schedule(own); err != nil {
		return err
	}
	for i := range fed {
		if err := p.until(fed[i].at); err != nil {
			return err
		}
		p.receive(fed[i].at, &fed[i])
	}
	end := vtime.Time(linger)
	if n := len(fed); n > 0 {
		end = fed[n-1].at.Add(linger)
	}
	if err := p.until(end); err != nil {
		return err
	}
	p.drain(end)
	return nil
}

// action is something that the side's program does at an instant.
type action struct {
	at vtime.Time
	do func() error
}

func (p *player) schedule(own []frame) error {
	delay := vtime.Time(time.Duration(p.flow.Setup.RecvDelayMs) * time.Millisecond)
	if p.client {
		delay = 0
	}
	p.actions = append(p.actions, action{delay, p.postRecvs})
	if p.client {
		p.actions = append(p.actions, action{0, p.postOps})
	} else if p.flow.Setup.ServerPostsToo {
		for i := range own {
			if m := wire.Info(own[i].pkt.Opcode).Mask; m&wire.Request != 0 {
				p.actions = append(p.actions, action{own[i].at, p.postOps})
				break
			}
		}
	}
	return nil
}

// until runs actions and timers that come before or at to.
func (p *player) until(to vtime.Time) error {
	for len(p.actions) > 0 && p.actions[0].at <= to {
		a := p.actions[0]
		p.actions = p.actions[1:]
		p.advance(a.at)
		if err := a.do(); err != nil {
			return err
		}
		p.drain(a.at)
	}
	p.advance(to)
	return nil
}

// describe is a packet in short: operation and PSN.
func describe(f *frame) string {
	return fmt.Sprintf("%s psn=%d", wire.Info(f.pkt.Opcode).Name, f.pkt.PSN)
}
