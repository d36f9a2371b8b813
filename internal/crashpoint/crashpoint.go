// Package crashpoint names the points of a flight at which a test or a drill can kill the process, to show the
// guarantee at each point. A Set is passed to the packages that have such points. There is no global Set; the nil Set
// does nothing, and only `flightd serve`, `flightd dev` and `flightd drill` have another one.
package crashpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Env is the environment variable with the crash points, separated by commas: "after-open", or "before-report@3" for
// the third pass of the point.
const Env = "FLIGHTD_CRASH_AT"

// Point is the name of one crash point. It is an alias, so that the configurations of packages executor and remote take
// any func(string).
type Point = string

// The points, in the order in which a flight passes them. Only the process that performs the effect passes BeforeSend
// and AfterEffect.
const (
	BeforeOpen    Point = "before-open"
	DuringOpen    Point = "during-open" // the claim is sent, and the Open is not proposed yet
	AfterOpen     Point = "after-open"
	BeforeSend    Point = "before-send"
	AfterEffect   Point = "after-effect"
	BeforeReport  Point = "before-report"
	AfterReport   Point = "after-report"
	BeforeRelease Point = "before-release"
	BeforeSuspend Point = "before-suspend" // only of a flight whose attempt waits for a callback; see All
	AfterSuspend  Point = "after-suspend"
)

// All returns the points in the order in which a flight passes them that waits for no callback.
func All() []Point {
	return []Point{BeforeOpen, DuringOpen, AfterOpen, BeforeSend, AfterEffect, BeforeReport, AfterReport, BeforeRelease}
}

// Set has the points at which this process dies. The nil Set never kills.
type Set struct {
	kill func() // does not return

	mu         sync.Mutex    // guards left
	passesLeft map[Point]int // passes until the one that kills, inclusive
}

// Parse parses the value of Env, or nil for "". Errors quote the invalid entry.
func Parse(s string) (*Set, error) {
	if s == "" {
		return nil, nil
	}
	left := make(map[Point]int)
	for _, word := range strings.Split(s, ",") {
		name, times, counted := strings.Cut(strings.TrimSpace(word), "@")
		n := 1
		if counted {
			var err error
			if n, err = strconv.Atoi(times); err != nil || n < 1 {
				return nil, fmt.Errorf("%s: %q: after the @ must be the number of the pass that kills, from 1", Env, word)
			}
		}
		if allowed := append(All(), BeforeSuspend, AfterSuspend); !slices.Contains(allowed, Point(name)) {
			return nil, fmt.Errorf("%s: %q is not a crash point; allowed: %v", Env, name, allowed)
		}
		left[Point(name)] = n
	}
	return &Set{kill: killSelf, passesLeft: left}, nil
}

// At is called at the point p. It kills this process with SIGKILL if the Set says so.
func (s *Set) At(p Point) {
	if s == nil {
		return
	}
	s.mu.Lock()
	n := s.passesLeft[p]
	if n > 0 {
		s.passesLeft[p] = n - 1
	}
	s.mu.Unlock()
	if n == 1 {
		s.kill()
	}
}

// killSelf is kill -9: nothing is flushed, no deferred call runs.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}
