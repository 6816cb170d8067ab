package daemon

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/internal/topology"
)

// schedule is what goes wrong in a daemon's network at its own time, and a goroutine that
// sees to it. It is over when the last fault has been carried out, or at stop.
type schedule struct {
	name  string // of the file
	start time.Time
	list  []topology.LiveFault // in order of time
	stop  chan struct{}
	ended chan struct{}

	// Under faults' lock.
	done    int      // so many have had their time
	failed  int      // so many of these met nothing, or could not be
	last    []string // why, the last ones
	stopped bool
}

// ScheduleReport is a schedule as it is now.
type ScheduleReport struct {
	File   string        `json:"file"`
	Faults int           `json:"faults"`
	Done   int           `json:"done"`
	Failed int           `json:"failed"` // of those done
	Why    []string      `json:"why"`    // they failed, the last ones
	NextIn time.Duration `json:"next_in_ns"`
	Over   bool          `json:"over"`
}

// mostReasons is how many failures of a schedule are kept.
const mostReasons = 8

// follow replaces the schedule. Times count from now.
func (f *faults) follow(name string, list []topology.LiveFault) {
	f.halt()
	s := &schedule{name: name, start: time.Now(), list: list, stop: make(chan struct{}), ended: make(chan struct{})}
	f.mu.Lock()
	f.plan = s
	f.mu.Unlock()
	go f.carryOut(s)
}

// halt ends the schedule, if there is one that is not over, and returns how many of its
// faults will not come.
func (f *faults) halt() (left int) {
	f.mu.Lock()
	s := f.plan
	if s != nil && !s.stopped {
		s.stopped = true
		left = len(s.list) - s.done
		close(s.stop)
	}
	f.mu.Unlock()
	if s != nil {
		<-s.ended
	}
	return left
}

func (f *faults) carryOut(s *schedule) {
	defer close(s.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range s.list {
		x := &s.list[i]
		timer.Reset(time.Until(s.start.Add(x.At)))
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		f.mu.Lock()
		if s.stopped {
			f.mu.Unlock()
			return
		}
		done, err := f.apply(x)
		s.done++
		if err != nil {
			s.failed++
			s.last = append(s.last, fmt.Sprintf("%s at %s: %v", x.Action, x.At, err))
			s.last = s.last[max(0, len(s.last)-mostReasons):]
		}
		f.mu.Unlock()
		if err != nil {
			f.d.log.Warn("fault", "schedule", s.name, "at", x.At, "action", x.Action, "err", err)
		} else {
			f.d.log.Info("fault", "schedule", s.name, "at", x.At, "action", x.Action, "done", done)
		}
	}
}

// progress is how far the schedule is; nil if there was none.
func (f *faults) progress() *ScheduleReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.plan
	if s == nil {
		return nil
	}
	r := &ScheduleReport{File: s.name, Faults: len(s.list), Done: s.done, Failed: s.failed, Why: append([]string{}, s.last...), Over: s.stopped || s.done == len(s.list)}
	if !r.Over {
		r.NextIn = max(0, time.Until(s.start.Add(s.list[s.done].At)))
	}
	return r
}

// Kinds of FAULT.
const (
	faultOne      = 0 // the data is the text of one fault
	faultSchedule = 1 // the data is the name of a file, a zero byte, and its text
	faultHalt     = 2 // the schedule is over
)

// MaxSchedule bounds the text of a schedule that is sent to a daemon.
const MaxSchedule = 240 << 10

// begin starts the schedule of a file.
func (f *faults) begin(data string) (string, error) {
	name, text, _ := strings.Cut(data, "\x00")
	f.mu.Lock()
	list, err := topology.ParseSchedule(f.file, name, []byte(text))
	f.mu.Unlock()
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("%s: found no faults; expected the key faults or random_faults", name)
	}
	f.follow(name, list)
	return plural(len(list), "fault") + " until " + list[len(list)-1].At.String() + " from now", nil
}

// BeginSchedule has the daemon whose control socket is at path carry out the faults of a
// file, from now on, in place of what is left of another; see [topology.ParseSchedule].
func BeginSchedule(path, name string, text []byte) (string, error) {
	if len(text)+len(name) > MaxSchedule {
		return "", &FaultError{fmt.Sprintf("%s:1:1: found %d bytes; expected at most %d in a schedule for a running network", name, len(text), MaxSchedule)}
	}
	return askFault(path, &request{op: opFault, kind: faultSchedule, data: []byte(name + "\x00" + string(text))})
}

// HaltSchedule ends the schedule of a daemon.
func HaltSchedule(path string) (string, error) {
	return askFault(path, &request{op: opFault, kind: faultHalt})
}

func askFault(path string, rq *request) (string, error) {
	var a faultAnswer
	if err := ask(path, rq, &a); err != nil {
		return "", err
	}
	if a.Error != "" {
		return "", &FaultError{a.Error}
	}
	return a.Done, nil
}

// answer carries out a FAULT of any kind.
func (f *faults) answer(rq *request) (string, error) {
	switch rq.kind {
	case faultOne:
		return f.inject(string(rq.data))
	case faultSchedule:
		return f.begin(string(rq.data))
	case faultHalt:
		if f.progress() == nil {
			return "", errors.New("no schedule was begun")
		}
		return plural(f.halt(), "fault") + " will not come", nil
	}
	return "", fmt.Errorf("unknown kind %d of fault", rq.kind)
}
