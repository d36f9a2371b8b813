package node

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// waitLimit bounds each wait for a state. It is far longer than any of them takes, also on a busy machine.
const waitLimit = time.Minute

// trial is one run of a test that expects one leader all the time.
type trial struct {
	testing.TB
	c   *testCluster
	act *actor // of the leader at the beginning

	mu      sync.Mutex // guards failure
	failure string
}

func (tr *trial) Errorf(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.failure += fmt.Sprintf(format, args...) + "\n"
}

func (tr *trial) FailNow() {
	tr.Errorf("") // also without a message the run has failed
	runtime.Goexit()
}

// leader returns the number of the leader, which must not change from now on.
func (tr *trial) leader(c *testCluster) int {
	lead := c.leader()
	tr.c, tr.act = c, c.nodes[lead].act.Load()
	return lead
}

// leaderChanged reports whether another term has begun.
func (tr *trial) leaderChanged() bool {
	if tr.c == nil {
		return false
	}
	changed := tr.act == nil || tr.act.over()
	for _, n := range tr.c.nodes {
		a := n.act.Load()
		changed = changed || a != nil && a != tr.act
	}
	return changed
}

// inOneTerm runs a test. If it fails and the leader has changed, as on a machine that stalls, it is run again: three times at most.
func inOneTerm(t *testing.T, run func(*trial)) {
	t.Helper()
	for n := 1; ; n++ {
		tr, done := &trial{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			run(tr)
		}()
		<-done
		tr.mu.Lock()
		failure := tr.failure
		tr.mu.Unlock()
		if failure == "" {
			return
		}
		if n == 3 || !tr.leaderChanged() {
			t.Fatal(failure)
		}
		t.Log("the leader has changed; the test is run again: ", failure)
		for i := range tr.c.nodes {
			tr.c.stop(i)
		}
	}
}

// syncBuffer is a buffer for concurrent writers.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
