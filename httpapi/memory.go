package httpapi

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// maxBodyMemory is the maximum number of bytes of request bodies that a node holds, besides one further body, and also the
// maximum for answers. The first bodyPace bytes of each body and answer do not count.
const maxBodyMemory = 128 << 20

// bodyMemorySize returns maxBodyMemory, or less in a process with little memory.
func bodyMemorySize() int { return int(min(maxBodyMemory, debug.SetMemoryLimit(-1)/7)) }

// answerMemory counts the memory of answers that their callers have not read yet. It is safe for concurrent use.
//
// A namespace may use a quarter of it; callers beyond the quarter get rate_limited, and callers of other namespaces are not
// affected. An answer larger than the quarter is still written if it is the only one of its namespace.
type answerMemory struct {
	tokens bool // callers have tokens; callers without a token share one part

	mu   sync.Mutex // guards the fields below
	size int
	used int
	of   map[string]int // bytes in use by namespace
}

// namespace returns the namespace that the answer to a request is counted for.
func (m *answerMemory) namespace(r *http.Request) string {
	if m.tokens && callerOf(r) == nil {
		return ""
	}
	ns, _ := namespace(r) // an answer without a valid namespace is counted for the empty namespace
	return ns
}

// take adds n bytes and reports whether there was memory for them. If so, the caller must release them.
func (m *answerMemory) take(namespace string, n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.of[namespace]
	if m.used > 0 && m.used+n > m.size || own > 0 && own+n > m.size/4 {
		return false
	}
	m.used, m.of[namespace] = m.used+n, own+n
	return true
}

func (m *answerMemory) release(namespace string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.of[namespace] -= n; m.of[namespace] == 0 {
		delete(m.of, namespace)
	}
}

// errBodyMemory is the error for a body that found no memory.
var errBodyMemory = errors.New("this node has no memory for the body: too many large requests at once")

// bodyMemory counts the memory of request bodies. One value in a channel is bodyPace bytes in use.
//
// New work may use half of it and callbacks an eighth, and neither waits. Reports may use all of it and wait for each other. If all
// of them waited, no report could end, so one report at a time is read without a limit.
type bodyMemory struct {
	all       chan struct{}
	newWork   chan struct{} // the part of all that opens and imports use
	callbacks chan struct{} // the part of all that callbacks use; it is small because no operator can revoke their senders
	last      chan struct{} // holds a value while one report is read without a limit
}

func newBodyMemory(size int) *bodyMemory {
	n := size / bodyPace
	return &bodyMemory{all: make(chan struct{}, n), newWork: make(chan struct{}, n/2), callbacks: make(chan struct{}, n/8), last: make(chan struct{}, 1)}
}

// bodyShare is the memory that one request uses.
type bodyShare struct {
	memory      *bodyMemory
	part        chan struct{} // newWork or callbacks of memory; nil for a report
	all, inPart int           // in units of bodyPace bytes
	last        bool
}

// takeFromPart adds bodyPace bytes for new work or a callback. It returns errBodyMemory if the whole part, or all memory, is in use.
func (s *bodyShare) takeFromPart() error {
	select {
	case s.part <- struct{}{}:
		s.inPart++
	default:
		return errBodyMemory
	}
	select {
	case s.memory.all <- struct{}{}:
		s.all++
		return nil
	default:
		return errBodyMemory
	}
}

// takeForReport adds bodyPace bytes for a report, and waits for them if necessary. It returns errBodyMemory after the
// wait, or the cause of the end of ctx.
func (s *bodyShare) takeForReport(ctx context.Context, wait time.Duration) error {
	if s.last {
		return nil
	}
	select {
	case s.memory.all <- struct{}{}:
		s.all++
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case s.memory.all <- struct{}{}:
		s.all++
	case s.memory.last <- struct{}{}:
		s.last = true
	case <-timer.C:
		return errBodyMemory
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// release gives the memory back. The request has ended.
func (s *bodyShare) release() {
	for range s.all {
		<-s.memory.all
	}
	for range s.inPart {
		<-s.part
	}
	if s.last {
		<-s.memory.last
	}
}
