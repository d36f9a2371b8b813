// Package crashpoint names the moments of a flight at which a process may be made to die, so that anybody can see
// what flightd promises about each of them. A Set is handed to whoever passes such a moment; there is no global one,
// and the nil Set, everybody's but that of `flightd dev` and `flightd drill`, does nothing.
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

// Env is the environment variable that names the points, such as "after-open", or "before-report@3" for the third
// time that it is passed. Several are separated by commas.
const Env = "FLIGHTD_CRASH_AT"

// Point is one moment. It is an alias, so that the configurations of packages executor and remote take any func(string).
type Point = string

// The points, in the order in which a flight passes them. BeforeSend and AfterEffect are passed only where the effect
// is performed.
const (
	BeforeOpen    Point = "before-open"
	DuringOpen    Point = "during-open" // the claim is on its way, and the ledger is not asked yet
	AfterOpen     Point = "after-open"
	BeforeSend    Point = "before-send"
	AfterEffect   Point = "after-effect"
	BeforeReport  Point = "before-report"
	AfterReport   Point = "after-report"
	BeforeRelease Point = "before-release"
)

// All gives the points in the order in which a flight passes them.
func All() []Point {
	return []Point{BeforeOpen, DuringOpen, AfterOpen, BeforeSend, AfterEffect, BeforeReport, AfterReport, BeforeRelease}
}

// Set is the points at which this process dies. The nil Set never kills.
type Set struct {
	kill func() // does not return

	mu   sync.Mutex
	left map[Point]int // how many passes until the one that kills
}

// Parse reads what Env holds; nil for "". Errors name the word that is no point.
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
				return nil, fmt.Errorf("%s: %q: behind the @ stands which pass kills, from 1 on", Env, word)
			}
		}
		if !slices.Contains(All(), Point(name)) {
			return nil, fmt.Errorf("%s: %q is none of %v", Env, name, All())
		}
		left[Point(name)] = n
	}
	return &Set{kill: killSelf, left: left}, nil
}

// At is called at the moment itself. It kills this process, with SIGKILL, if that was asked for.
func (s *Set) At(p Point) {
	if s == nil {
		return
	}
	s.mu.Lock()
	n := s.left[p]
	if n > 0 {
		s.left[p] = n - 1
	}
	s.mu.Unlock()
	if n == 1 {
		s.kill()
	}
}

// killSelf dies as by kill -9: nothing is flushed, no deferred call runs.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
