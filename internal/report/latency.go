package report

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longestLatency bounds what the histogram tells apart. Longer ones count as this
// long in percentiles; Max stays exact.
const longestLatency = int64(time.Hour)

// Latency is a histogram of intervals in nanoseconds with an error of at most 1 %.
// Count, Min, Max and Mean are exact. One takes about 40 kB. It is not safe for
// concurrent use; give each goroutine its own and Merge them.
type Latency struct {
	histogram *hdrhistogram.Histogram
	count     uint64
	sum       float64
	min, max  int64
}

// NewLatency returns an empty histogram.
func NewLatency() *Latency {
	const digits = 2
	return &Latency{histogram: hdrhistogram.New(1, longestLatency, digits)}
}

// Record adds one interval in nanoseconds; a negative one counts as 0. It does not
// allocate.
func (l *Latency) Record(ns int64) {
	ns = max(ns, 0)
	if l.count == 0 || ns < l.min {
		l.min = ns
	}
	l.max = max(l.max, ns)
	l.count++
	l.sum += float64(ns)
	// Cannot fail: the value is within the range that NewLatency gave.
	_ = l.histogram.RecordValue(min(ns, longestLatency))
}

// Merge adds everything that o holds. A nil o holds nothing.
func (l *Latency) Merge(o *Latency) {
	if o.Count() == 0 {
		return
	}
	if l.count == 0 || o.min < l.min {
		l.min = o.min
	}
	l.max = max(l.max, o.max)
	l.count += o.count
	l.sum += o.sum
	l.histogram.Merge(o.histogram)
}

// Count is how many intervals were recorded; 0 for nil.
func (l *Latency) Count() uint64 {
	if l == nil {
		return 0
	}
	return l.count
}

// Min is the shortest interval in nanoseconds.
func (l *Latency) Min() int64 { return l.min }

// Max is the longest interval in nanoseconds.
func (l *Latency) Max() int64 { return l.max }

// Mean is the mean in nanoseconds, rounded to the nearest; 0 if nothing was recorded.
func (l *Latency) Mean() int64 {
	if l.count == 0 {
		return 0
	}
	return int64(l.sum/float64(l.count) + 0.5)
}

// Percentile is the interval in nanoseconds that p percent of the recorded ones do
// not exceed, p from 0 to 100.
func (l *Latency) Percentile(p float64) int64 {
	// A bucket's upper end can lie beyond what was recorded.
	return min(max(l.histogram.ValueAtPercentile(p), l.min), l.max)
}
