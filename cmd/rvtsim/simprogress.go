package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/rvtsim/rvtsim/internal/report"
)

// simProgress shows a bar with rate and ETA on a terminal, once a simulation takes more
// than a second. With one seed the bar is that run's, else that of the seeds. It is safe
// for concurrent use.
type simProgress struct {
	mu     sync.Mutex
	show   bool
	seeds  uint64
	start  time.Time
	events atomic.Uint64 // not under mu: the bar's own goroutine reads it
	pool   *mpb.Progress
	bar    *mpb.Bar
	done   int64
}

// barSteps is the length of the bar of one run.
const barSteps = 1000

func newSimProgress(seeds uint64) *simProgress {
	return &simProgress{seeds: seeds, start: time.Now(), show: report.IsTerminal(os.Stderr)}
}

// update notes events that have happened, and how much of its run a seed has done.
func (p *simProgress) update(events uint64, share float64) {
	p.events.Add(events)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open() {
		return
	}
	if p.seeds == 1 {
		p.bar.SetCurrent(int64(share * barSteps))
	}
}

// seedDone notes that a seed is through.
func (p *simProgress) seedDone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.open() && p.seeds > 1 {
		p.bar.SetCurrent(p.done)
	}
}

// open makes the bar when it is time, and reports whether there is one.
func (p *simProgress) open() bool {
	if !p.show || p.bar == nil && time.Since(p.start) < time.Second {
		return false
	}
	if p.bar != nil {
		return true
	}
	total, name := int64(barSteps), "simulating "
	if p.seeds > 1 {
		total, name = int64(p.seeds), "seeds "
	}
	p.pool = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
	counters := decor.Name("")
	if p.seeds > 1 {
		counters = decor.CountersNoUnit("%d of %d")
	}
	rate := decor.Any(func(decor.Statistics) string {
		return fmt.Sprintf(" %s events/s ", report.Count(uint64(float64(p.events.Load())/time.Since(p.start).Seconds())))
	})
	p.bar = p.pool.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name), counters),
		mpb.AppendDecorators(decor.Percentage(), rate, decor.Name("ETA "), decor.AverageETA(decor.ET_STYLE_GO)))
	return true
}

func (p *simProgress) close() {
	p.mu.Lock()
	bar, pool := p.bar, p.pool
	p.mu.Unlock()
	if bar != nil {
		bar.Abort(true)
		pool.Wait()
	}
}
