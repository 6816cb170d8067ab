package vtime

import (
	"math"
	"testing"
	"time"
)

func TestAddSaturates(t *testing.T) {
	for _, c := range []struct {
		t    Time
		d    time.Duration
		want Time
	}{
		{0, time.Second, 1e9},
		{Never, time.Second, Never},
		{Never, -time.Second, Never},
		{Never - 1, 2, Never},
		{5, -3, 2},
	} {
		if got := c.t.Add(c.d); got != c.want {
			t.Errorf("%d.Add(%d) = %d, want %d", int64(c.t), c.d, int64(got), int64(c.want))
		}
	}
}

func TestSub(t *testing.T) {
	if got := Time(7).Sub(5); got != 2 {
		t.Errorf("7-5 = %v", got)
	}
	if got := Never.Sub(5); got != math.MaxInt64 {
		t.Errorf("never-5 = %v", got)
	}
	if got := Time(5).Sub(Never); got != math.MinInt64 {
		t.Errorf("5-never = %v", got)
	}
	if got := Never.Sub(Never); got != 0 {
		t.Errorf("never-never = %v", got)
	}
}

func TestString(t *testing.T) {
	if s := Time(1500000).String(); s != "1.5ms" {
		t.Errorf("got %q", s)
	}
	if s := Never.String(); s != "never" {
		t.Errorf("got %q", s)
	}
}

func TestMinBefore(t *testing.T) {
	if Min(3, Never) != 3 || Min(Never, 3) != 3 {
		t.Error("Min")
	}
	if !Time(3).Before(4) || Time(4).Before(4) {
		t.Error("Before")
	}
}
