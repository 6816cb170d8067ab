package strict

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// bench is a guarded device whose queue pairs talk to each other.
type bench struct {
	t    *testing.T
	d    *rvt.Device
	g    *Guard
	pd   *rvt.PD
	mr   *rvt.MR
	mem  *mr.Slice
	cq   *cq.CQ
	got  []Report
	now  vtime.Time
	out  rvt.Outbox
	gath mr.Batch
}

const slots = 4

func newBench(t *testing.T, checks Checks, seed uint64) *bench {
	b := &bench{t: t, mem: mr.NewSlice(0x1000, make([]byte, 4096))}
	cfg := rvt.DefaultConfig("dut", ib.GIDFromIPv4(10, 0, 0, 1))
	b.g = NewGuard(checks, seed, func(r Report) { b.got = append(b.got, r) }, &cfg)
	var err error
	b.d, err = rvt.New(cfg)
	require.NoError(t, err)
	b.pd, err = b.d.AllocPD()
	require.NoError(t, err)
	b.mr, err = b.d.RegMR(b.pd, b.mem, 0x1000, 4096, 0x1000, ib.AccessLocalWrite|ib.AccessRemoteMask)
	require.NoError(t, err)
	b.cq, err = b.d.CreateCQ(64, nil)
	require.NoError(t, err)
	return b
}

// pair makes two connected queue pairs.
func (b *bench) pair() (x, y *qp.QP) {
	init := qp.InitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, Cap: qp.Cap{MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1}}
	for _, q := range []**qp.QP{&x, &y} {
		var err error
		*q, err = b.d.CreateQP(b.pd, &init)
		require.NoError(b.t, err)
	}
	b.connect(x, y)
	b.connect(y, x)
	return x, y
}

func (b *bench) connect(q, peer *qp.QP) {
	a := qp.Attr{State: ib.StateInit, PortNum: 1, AccessFlags: ib.AccessRemoteMask}
	require.NoError(b.t, b.d.ModifyQP(b.now, q, &a, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
	a = qp.Attr{State: ib.StateRTR, PathMTU: ib.MTU1024, DestQPN: peer.QPN, MinRNRTimer: 12, MaxDestRdAtomic: 4,
		AV: ib.AV{DGID: b.d.GIDs()[0], IsGlobal: true, HopLimit: 64, PortNum: 1}}
	require.NoError(b.t, b.d.ModifyQP(b.now, q, &a, ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer))
	a = qp.Attr{State: ib.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 4}
	require.NoError(b.t, b.d.ModifyQP(b.now, q, &a, ib.AttrState|ib.AttrSQPSN|ib.AttrTimeout|ib.AttrRetryCnt|ib.AttrRNRRetry|ib.AttrMaxQPRdAtomic))
}

// settle carries packets until there are none.
func (b *bench) settle() {
	for more := true; more || len(b.out.Packets) > 0; {
		b.out.Reset()
		more = b.d.Emit(b.now, &b.out, 64)
		for i := range b.out.Packets {
			p := &b.out.Packets[i]
			payload := make([]byte, p.Len)
			b.out.Gather(&b.gath, i, payload)
			require.Empty(b.t, b.gath.Read())
			p.Pkt.Payload = payload
			b.d.Receive(b.now, &p.Path, &p.Pkt)
		}
		b.d.Commit(b.now)
	}
}

func (b *bench) write(q *qp.QP, id uint64, flags ib.SendFlags) error {
	_, err := b.d.PostSend(q, []swqe.SendWR{{WRID: id, Opcode: ib.WRRDMAWrite, Flags: flags, RemoteAddr: 0x1800, RKey: b.mr.RKey,
		SGL: []mr.SGE{{Addr: 0x1000, Length: 8, LKey: b.mr.LKey}}}})
	return err
}

func (b *bench) codes() (ids []string) {
	for _, r := range b.got {
		ids = append(ids, r.Code.ID)
	}
	return ids
}

// TestGuardSlots: a slot is free when the completion at or behind it was taken out of the
// ring, whoever took it.
func TestGuardSlots(t *testing.T) {
	b := newBench(t, All(), 1)
	x, _ := b.pair()
	for i := range slots {
		flags := ib.SendFlags(0)
		if i%2 == 1 {
			flags = ib.SendSignaled
		}
		require.NoError(t, b.write(x, uint64(i), flags))
	}
	b.settle()
	require.Zero(t, x.Outstanding(), "all is acknowledged")
	err := b.write(x, 9, 0)
	require.Equal(t, ib.ENOMEM, ib.ErrnoOf(err))
	require.Contains(t, err.Error(), "2 completions wait in the queue to be polled")
	require.Equal(t, []string{"STRICT-SQ-02"}, b.codes())
	require.Equal(t, x, b.got[0].Subject)

	var wc [1]cq.WC
	require.Equal(t, 1, b.cq.Poll(wc[:]))
	require.NoError(t, b.write(x, 10, 0))
	require.NoError(t, b.write(x, 11, ib.SendSignaled))
	require.Error(t, b.write(x, 12, 0), "one completion frees the two slots up to it")
	b.settle()

	// Without the switch the device is as patient as ever.
	checks := All()
	checks.Slots = false
	c := newBench(t, checks, 1)
	x, _ = c.pair()
	for i := range 4 * slots {
		require.NoError(t, c.write(x, uint64(i), ib.SendSignaled))
		c.settle()
	}
	require.Empty(t, c.got)
}

// TestGuardFreedom: completions of different queue pairs change places, those of one keep
// their order, and the guard still knows which slots a poll frees.
func TestGuardFreedom(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(8) {
		b := newBench(t, All(), seed)
		x, y := b.pair()
		b.settle()
		seen := ""
		var next [2]uint64
		for round := range uint64(50) {
			require.NoError(t, b.write(x, round<<1, ib.SendSignaled))
			require.NoError(t, b.write(y, round<<1|1, ib.SendSignaled))
			b.settle()
			var wc [4]cq.WC
			require.Equal(t, 2, b.cq.Poll(wc[:]))
			for _, w := range wc[:2] {
				require.Equal(t, next[w.WRID&1], w.WRID>>1)
				next[w.WRID&1]++
				seen += string(rune('x' + w.WRID&1))
			}
		}
		require.Empty(t, b.got)
		orders[seen] = true
	}
	require.Greater(t, len(orders), 4)
}

// fakeRing is a ring that a program fills by itself.
type fakeRing struct {
	swqe.RecvQueue
	waiting []swqe.RWQE
}

func (r *fakeRing) Len() int { return len(r.waiting) }
func (r *fakeRing) Cap() int { return slots }
func (r *fakeRing) Peek(i int, e *swqe.RWQE) bool {
	*e = r.waiting[i]
	return true
}
func (r *fakeRing) Take(e *swqe.RWQE) (ok, bad bool) {
	if len(r.waiting) == 0 {
		return false, false
	}
	*e, r.waiting = r.waiting[0], r.waiting[1:]
	return true, false
}

// TestGuardRing: receives in a ring are seen before one is taken, and each once.
func TestGuardRing(t *testing.T) {
	b := newBench(t, All(), 1)
	ring := &fakeRing{}
	x, _ := b.pair()
	init := qp.InitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, RQ: ring, Cap: qp.Cap{MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1}}
	y, err := b.d.CreateQP(b.pd, &init)
	require.NoError(t, err)
	b.connect(y, x)
	require.NoError(t, b.d.ModifyQP(b.now, x, &qp.Attr{State: ib.StateReset}, ib.AttrState))
	b.connect(x, y)

	recv := func(id uint64, at uint64) {
		ring.waiting = append(ring.waiting, swqe.RWQE{WRID: id, SGL: []mr.SGE{{Addr: at, Length: 64, LKey: b.mr.LKey}}})
	}
	send := func() {
		_, err := b.d.PostSend(x, []swqe.SendWR{{WRID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: []mr.SGE{{Addr: 0x1000, Length: 8, LKey: b.mr.LKey}}}})
		require.NoError(t, err)
		b.settle()
		var wc [4]cq.WC
		require.Equal(t, 2, b.cq.Poll(wc[:]))
	}
	for i := range uint64(20) {
		recv(i, 0x1400+i%4*64) // memory comes round when its receive has completed
		send()
	}
	require.Empty(t, b.got)
	recv(20, 0x1400)
	recv(21, 0x143f)
	b.g.CatchUp()
	require.Equal(t, []string{"STRICT-RECV-01"}, b.codes())
	require.Contains(t, b.got[0].Text, "1 byte of receive wr 21 belongs to receive wr 20")
	send()
	send()

	// Flushing takes all out; RESET forgets them.
	recv(22, 0x1500)
	b.g.CatchUp()
	require.NoError(t, b.d.ModifyQP(b.now, y, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	recv(23, 0x1500)
	b.d.FlushRecv(y)
	require.Len(t, b.got, 1, "%v", b.got)
}

// TestGuardHostileRing: a program that plays with the indices cannot make the guard
// remember without bound.
func TestGuardHostileRing(t *testing.T) {
	b := newBench(t, All(), 1)
	ring := &fakeRing{}
	init := qp.InitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, RQ: ring, Cap: qp.Cap{MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1}}
	q, err := b.d.CreateQP(b.pd, &init)
	require.NoError(t, err)
	for range 1000 {
		ring.waiting = make([]swqe.RWQE, slots)
		b.g.CatchUp()
		ring.waiting = nil
		b.g.CatchUp()
	}
	require.LessOrEqual(t, len(b.g.qp(q).recv.posted), 4*slots)
}

// TestGuardPatience: armed with completions in it, and never polled.
func TestGuardPatience(t *testing.T) {
	b := newBench(t, All(), 1)
	x, _ := b.pair()
	require.NoError(t, b.write(x, 1, ib.SendSignaled))
	b.settle()
	b.d.ReqNotify(b.cq, false)
	for range overdueAfter - 1 {
		b.g.Overdue()
	}
	require.Empty(t, b.got)
	b.g.Overdue()
	require.Equal(t, []string{"STRICT-EV-01"}, b.codes())

	c := newBench(t, All(), 1)
	x, _ = c.pair()
	require.NoError(t, c.write(x, 1, ib.SendSignaled))
	c.settle()
	c.d.ReqNotify(c.cq, false)
	c.g.Overdue()
	var wc [1]cq.WC
	require.Equal(t, 1, c.cq.Poll(wc[:]))
	for range 2 * overdueAfter {
		c.g.Overdue()
	}
	require.Empty(t, c.got, "it was polled in time")
}

// TestGuardNeverArmed: completions wait in a queue with a channel, and nothing was ever armed.
func TestGuardNeverArmed(t *testing.T) {
	for name, c := range map[string]struct {
		channel bool
		before  func(*bench)
		between func(*bench)
		want    []string
	}{
		"asleep":            {channel: true, want: []string{"STRICT-EV-04"}},
		"without a channel": {},
		"it was armed once": {channel: true, before: func(b *bench) { b.d.ReqNotify(b.cq, false) }},
		"it polls":          {channel: true, between: func(b *bench) { b.cq.Poll(make([]cq.WC, 1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, All(), 1)
			b.g.Channel = func(*cq.CQ) bool { return c.channel }
			if c.before != nil {
				c.before(b)
			}
			x, _ := b.pair()
			for id := range uint64(3) {
				require.NoError(t, b.write(x, id, ib.SendSignaled))
			}
			b.settle()
			for range overdueAfter {
				require.Empty(t, b.got)
				if c.between != nil {
					c.between(b)
				}
				b.g.Overdue()
			}
			b.g.Overdue() // told once
			require.Equal(t, c.want, b.codes())
		})
	}
}

// lookAside notes what a write leaves at each step.
type lookAside struct {
	*mr.Slice
	seen []string
}

func (l *lookAside) WriteV(ops []mr.Op) (int, error) {
	n, err := l.Slice.WriteV(ops)
	l.seen = append(l.seen, string(l.Buf))
	return n, err
}

type nobody struct{}

func (nobody) Wrote(mr.Memory, uint64, int) {}

// TestLastBytesFirst: who waits for the last byte of a WRITE finds it before the rest.
func TestLastBytesFirst(t *testing.T) {
	under := &lookAside{Slice: mr.NewSlice(0, []byte("................"))}
	m := Memory{Mem: under, Freedom: true, T: nobody{}}
	n, err := m.WriteV([]mr.Op{{Addr: 0, Buf: []byte("0123456789ab")}, {Addr: 12, Buf: []byte("cdef")}})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"....456789ab....", "0123456789abcdef"}, under.seen)
	require.Equal(t, Memory{Mem: under, Freedom: true, T: nobody{}}, m, "the same memory is equal")

	_, err = m.WriteV([]mr.Op{{Addr: 10, Buf: make([]byte, 20)}})
	require.ErrorIs(t, err, mr.ErrFault)
}

func TestParseChecks(t *testing.T) {
	c, err := ParseChecks("all")
	require.NoError(t, err)
	require.Equal(t, All(), c)
	c, err = ParseChecks("poison, cq_size")
	require.NoError(t, err)
	require.Equal(t, Checks{Poison: true, CQSize: true}, c)
	_, err = ParseChecks("poison,nonsense")
	require.ErrorContains(t, err, `unknown check "nonsense"`)
	require.True(t, c.Any() && !Checks{}.Any())
}

// TestGuardWrongKey: the device whose key it is reports that a peer used an lkey.
func TestGuardWrongKey(t *testing.T) {
	b := newBench(t, All(), 1)
	x, y := b.pair()
	_, err := b.d.PostSend(x, []swqe.SendWR{{WRID: 1, Opcode: ib.WRRDMAWrite, RemoteAddr: 0x1800, RKey: ib.RKey(b.mr.LKey),
		SGL: []mr.SGE{{Addr: 0x1000, Length: 8, LKey: b.mr.LKey}}}})
	require.NoError(t, err)
	b.settle()
	require.Equal(t, []string{"STRICT-MEM-03"}, b.codes())
	require.Equal(t, y, b.got[0].Subject)
}

// TestFreedomOfNames: QPNs and keys are others with another seed, and the same with the same.
func TestFreedomOfNames(t *testing.T) {
	names := func(seed uint64, checks Checks) (ib.QPN, ib.LKey) {
		dc := rvt.DefaultConfig("rvt0", ib.GIDFromIPv4(10, 0, 0, 1))
		dc.Seed = 1
		Configure(checks, seed, &dc)
		d, err := rvt.New(dc)
		require.NoError(t, err)
		pd, err := d.AllocPD()
		require.NoError(t, err)
		c, err := d.CreateCQ(4, nil)
		require.NoError(t, err)
		q, err := d.CreateQP(pd, &qp.InitAttr{SendCQ: c, RecvCQ: c, Type: ib.QPTypeRC})
		require.NoError(t, err)
		m, err := d.RegMR(pd, mr.NewSlice(4096, make([]byte, 64)), 4096, 64, 4096, 0)
		require.NoError(t, err)
		return q.QPN, m.LKey
	}
	free := Checks{Freedom: true}
	q1, k1 := names(1, free)
	again, key := names(1, free)
	require.Equal(t, q1, again)
	require.Equal(t, k1, key)
	q2, k2 := names(2, free)
	require.NotEqual(t, q1, q2)
	require.NotEqual(t, k1, k2)
	q3, k3 := names(1, Checks{})
	q4, k4 := names(2, Checks{})
	require.Equal(t, q3, q4)
	require.Equal(t, k3, k4)
}

// TestFreedomReusesKeys: whether the key of a deregistered region serves the next one at
// once varies with the seed, and the same seed repeats it.
func TestFreedomReusesKeys(t *testing.T) {
	reuses := func(seed uint64, checks Checks) (seen string) {
		b := newBench(t, checks, seed)
		last := b.mr.LKey
		for range 12 {
			require.NoError(t, b.d.DeregMR(b.now, b.mr))
			var err error
			b.mr, err = b.d.RegMR(b.pd, b.mem, 0x1000, 4096, 0x1000, ib.AccessLocalWrite|ib.AccessRemoteMask)
			require.NoError(t, err)
			if b.mr.LKey == last {
				seen += "again "
			} else {
				seen += "new "
			}
			last = b.mr.LKey
		}
		return seen
	}
	one := reuses(1, Checks{Freedom: true})
	require.Contains(t, one, "again")
	require.Contains(t, one, "new")
	require.Equal(t, one, reuses(1, Checks{Freedom: true}))
	require.NotEqual(t, one, reuses(2, Checks{Freedom: true}))
	require.NotContains(t, reuses(1, Checks{Memory: true}), "again")
}
