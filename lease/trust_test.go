package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) Instant { return InstantOf(t0.Add(d), 0) }

func TestWindowCountsFromTheSending(t *testing.T) {
	w := NewWindow(at(0), 10*time.Second)
	for _, c := range []struct{ now, left time.Duration }{
		{0, 8 * time.Second}, {3 * time.Second, 5 * time.Second}, {8 * time.Second, 0}, {9 * time.Second, -time.Second},
	} {
		if got := w.Left(at(c.now)); got != c.left {
			t.Errorf("after %v: %v left, want %v", c.now, got, c.left)
		}
	}
	if (Window{}).Left(at(0)) > 0 {
		t.Error("the zero window is open")
	}
	if NewWindow(at(0), 400*time.Millisecond).Left(at(0)) > 0 {
		t.Error("a window shorter than its margin is open")
	}
}

func TestMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		2 * time.Second: 500 * time.Millisecond, 10 * time.Second: 2 * time.Second, 15 * time.Second: 3 * time.Second,
	} {
		if got := Margin(ttl); got != want {
			t.Errorf("margin of %v: %v, want %v", ttl, got, want)
		}
	}
}

// Time in which the machine was suspended, and a wall clock that jumped ahead, count; one that was set back does not.
func TestTheLongestClockDecides(t *testing.T) {
	w := NewWindow(at(0), 10*time.Second)
	suspended := InstantOf(t0.Add(time.Second), time.Hour)
	if left := w.Left(suspended); left > 0 {
		t.Errorf("after an hour of suspension %v are left", left)
	}
	ahead := at(time.Second)
	ahead.wall = t0.Add(time.Hour)
	if left := w.Left(ahead); left > 0 {
		t.Errorf("an hour ahead by the wall clock %v are left", left)
	}
	back := at(time.Second)
	back.wall = t0.Add(-time.Hour)
	if left := w.Left(back); left != 7*time.Second {
		t.Errorf("with the wall clock set back %v are left, want 7s", left)
	}
	stopped := at(time.Hour)
	stopped.boot, stopped.wall = at(0).boot, t0
	if left := w.Left(stopped); left > 0 {
		t.Errorf("an hour later by the monotonic clock %v are left", left)
	}
}

// However long requests and answers take, the window is shut before etcd's lease can end.
func TestWindowEndsBeforeTheLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.IntRange(2, 600).Draw(t, "ttl")) * time.Second
		there := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "there"))
		back := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "back"))
		w := NewWindow(at(0), ttl)
		leaseEnds := there + ttl // etcd counts from the arrival
		answered := there + back
		if left := w.Left(at(answered)); left > 0 && answered+left > leaseEnds-Margin(ttl) {
			t.Fatalf("trusted until %v, the lease ends at %v", answered+left, leaseEnds)
		}
	})
}

func TestNowReadsClocks(t *testing.T) {
	a := Now()
	if d := Now().Since(a); d < 0 || d > time.Minute {
		t.Errorf("two readings are %v apart", d)
	}
}

func TestRenewalsNeverOutliveTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.IntRange(2, 600).Draw(t, "ttl")) * time.Second
		left := time.Duration(rapid.Int64Range(-int64(time.Second), int64(ttl)).Draw(t, "left"))
		p := renewPatience(ttl, left)
		if p > ttl/3 || p > max(left, time.Millisecond) {
			t.Fatalf("a renewal may take %v of %v left at TTL %v", p, left, ttl)
		}
		if next := nextRenewal(ttl, true); next > nextRenewal(ttl, false) || next < 100*time.Millisecond {
			t.Fatalf("after a failure the next renewal comes in %v", next)
		}
	})
}
