package auth

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// Usage is what the ledger counts per namespace.
type Usage interface {
	// HeldIn returns how many flights of the namespace have an attempt without a report.
	HeldIn(namespace string) int
	// StoredIn returns how many flights of the namespace are stored, without tombstones.
	StoredIn(namespace string) int64
}

// NodeLimits bounds what all callers of a node use together. A field that is 0 has its default.
type NodeLimits struct {
	MaxOpens int // opens in progress, without those that wait for another caller; 0: 4096
	MaxWaits int // requests that wait for a change; 0: 8192
}

// Limiter counts what the namespaces use at this node, and applies the limits. Reports, verifications, abandons and
// renewals pass no Limiter, so new work is rejected before them. It is safe for concurrent use.
type Limiter struct {
	directory *Directory // nil: the namespaces have no limits
	usage     Usage
	node      NodeLimits

	mu         sync.Mutex // guards the fields below
	opens      int
	waits      int
	scans      int
	namespaces map[string]*namespaceUse
}

// namespaceUse is what one namespace uses at this node.
type namespaceUse struct {
	rate           *rate.Limiter
	sessions       *rate.Limiter
	scans          int
	opensPerSecond int64
	burst          int64
	waits, streams int64
}

// maxNamespaces is how many namespaces a Limiter remembers, apart from those that are in use.
const maxNamespaces = 4096

// NewLimiter returns a limiter. With a nil directory, only the limits of the node apply.
func NewLimiter(directory *Directory, usage Usage, node NodeLimits) *Limiter {
	node.MaxOpens, node.MaxWaits = cmp.Or(node.MaxOpens, 4096), cmp.Or(node.MaxWaits, 8192)
	return &Limiter{directory: directory, usage: usage, node: node, namespaces: make(map[string]*namespaceUse)}
}

// RateLimited means that a request came too early, or that this node has too many requests like it. Nothing was
// changed.
type RateLimited struct {
	Limit      string
	RetryAfter time.Duration
}

func (e *RateLimited) Error() string { return e.Limit }

// StartOpen counts an open. The caller must call end when the open is answered. StartOpen returns *RateLimited if the
// node has too many opens in progress, or the namespace had too many opens in the last second.
func (l *Limiter) StartOpen(namespace string) (end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opens >= l.node.MaxOpens {
		return nil, &RateLimited{Limit: "this node has too many opens in progress", RetryAfter: time.Second}
	}
	if err := l.allow(namespace); err != nil {
		return nil, err
	}
	l.opens++
	return func() { l.add(&l.opens, -1) }, nil
}

// AllowWork counts a submission, a start of a saga, or a claimed job against the rate of opens. It returns *RateLimited if the
// namespace has used up its rate.
func (l *Limiter) AllowWork(namespace string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allow(namespace)
}

// CountVerification counts a verification, which may continue like an open. It is never rejected. The caller must call
// end when it is answered.
func (l *Limiter) CountVerification() (end func()) {
	l.add(&l.opens, 1)
	return func() { l.add(&l.opens, -1) }
}

// The rate of new sessions of one namespace. A session lives for up to 10 minutes without a renewal, and takes memory of
// this process and of etcd.
const (
	sessionsPerSecond = 50
	sessionBurst      = 1000
)

// AllowSession returns *RateLimited if the namespace had too many new sessions lately.
func (l *Limiter) AllowSession(namespace string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, use := l.find(namespace)
	if use == nil {
		return nil
	}
	if use.sessions == nil {
		use.sessions = rate.NewLimiter(sessionsPerSecond, sessionBurst)
	}
	if use.sessions.Allow() {
		return nil
	}
	return &RateLimited{Limit: fmt.Sprintf("namespace %s may create %d sessions a second at this node", namespace, sessionsPerSecond), RetryAfter: time.Second}
}

// The number of scans at once: lists, pages of events, and pages of the audit log. Each may read thousands of rows.
const (
	maxScans            = 8
	maxScansOfNamespace = 2
)

// StartScan counts a request that reads many rows. The caller must call end when it is answered. StartScan returns
// *RateLimited if the namespace or the node has too many.
func (l *Limiter) StartScan(namespace string) (end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, use := l.find(namespace)
	switch {
	case use == nil:
		return func() {}, nil
	case l.scans >= maxScans, use.scans >= maxScansOfNamespace && namespace != flight.AllNamespaces:
		return nil, &RateLimited{Limit: fmt.Sprintf("this node reads at most %d lists of one namespace at once, and %d in all", maxScansOfNamespace, maxScans), RetryAfter: 100 * time.Millisecond}
	}
	l.scans++
	use.scans++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.scans--
		use.scans--
	}, nil
}

// allow takes one permission from the rate of a namespace. The caller holds the lock.
func (l *Limiter) allow(namespace string) error {
	limits, use := l.find(namespace)
	if use == nil {
		return nil
	}
	if use.opensPerSecond != limits.OpensPerSecond || use.burst != limits.Burst { // another document, or the first call
		use.opensPerSecond, use.burst = limits.OpensPerSecond, limits.Burst
		use.rate = rate.NewLimiter(rate.Limit(limits.OpensPerSecond), int(limits.Burst))
	}
	r := use.rate.Reserve()
	delay := r.Delay()
	if delay == 0 {
		return nil
	}
	r.Cancel()
	return &RateLimited{Limit: fmt.Sprintf("namespace %s may open, submit and claim %d flights a second at this node", namespace, limits.OpensPerSecond), RetryAfter: max(delay, time.Millisecond)}
}

// StartWait reserves the place of a request that waits for a change; an open that waits is not in progress meanwhile.
// The caller must call end when the wait is over. ok is false if the node or the namespace has too many waiting requests;
// then the request must be answered without a wait.
func (l *Limiter) StartWait(namespace string, open bool) (end func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits, use := l.find(namespace)
	if l.waits >= l.node.MaxWaits || use != nil && use.waits >= min(limits.MaxWaits, int64(l.node.MaxWaits/2)) {
		return nil, false
	}
	waiting := func(n int) {
		l.waits += n
		if use != nil {
			use.waits += int64(n)
		}
		if open {
			l.opens -= n
		}
	}
	waiting(1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		waiting(-1)
	}, true
}

// StartStream reserves a stream of events. The caller must call end when the stream is closed. StartStream returns
// *RateLimited if the namespace has too many.
func (l *Limiter) StartStream(namespace string) (end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits, use := l.find(namespace)
	switch {
	case use == nil:
		return func() {}, nil
	case use.streams >= limits.MaxStreams:
		return nil, &RateLimited{Limit: fmt.Sprintf("namespace %s may have %d open event streams at this node", namespace, limits.MaxStreams), RetryAfter: time.Second}
	}
	use.streams++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		use.streams--
	}, nil
}

// AllowAttempt returns *effect.TooMany or *effect.QuotaExceeded if the namespace of a key may not open another attempt.
// newKey is true if the key has no stored flight. Steps and undos are never rejected, because a limit must not leave a saga
// half done.
func (l *Limiter) AllowAttempt(key flight.Key, newKey bool) error {
	if l.directory == nil || key.IsStep() {
		return nil
	}
	namespace := key.Namespace()
	limits := l.directory.Limits(namespace)
	if int64(l.usage.HeldIn(namespace)) >= limits.MaxOpen {
		return &effect.TooMany{Key: key, Limit: fmt.Sprintf("namespace %s may have %d open attempts without a report", namespace, limits.MaxOpen), RetryAfter: time.Second}
	}
	if newKey {
		return l.AllowFlights(key, 1)
	}
	return nil
}

// AllowFlights returns *effect.QuotaExceeded if the namespace of a key may not store n more flights.
func (l *Limiter) AllowFlights(key flight.Key, n int64) error {
	if l.directory == nil {
		return nil
	}
	limits := l.directory.Limits(key.Namespace())
	if l.usage.StoredIn(key.Namespace())+n <= limits.MaxFlights {
		return nil
	}
	return &effect.QuotaExceeded{Key: key, Limit: fmt.Sprintf("namespace %s may store %d flights", key.Namespace(), limits.MaxFlights), RetryAfter: 30 * time.Second}
}

// find returns the limits and the use of a namespace; a nil use: the namespaces have no limits. The caller holds the
// lock.
func (l *Limiter) find(namespace string) (Limits, *namespaceUse) {
	if l.directory == nil {
		return Limits{}, nil
	}
	use := l.namespaces[namespace]
	if use == nil {
		if len(l.namespaces) >= maxNamespaces {
			l.forgetIdle()
		}
		use = &namespaceUse{}
		l.namespaces[namespace] = use
	}
	return l.directory.Limits(namespace), use
}

// forgetIdle removes the namespaces that nothing is counted for: no wait, no stream, no scan, and rates that have recovered. The
// caller holds the lock.
func (l *Limiter) forgetIdle() {
	for name, use := range l.namespaces {
		if use.waits == 0 && use.streams == 0 && use.scans == 0 && (use.sessions == nil || use.sessions.Tokens() >= sessionBurst) && (use.rate == nil || use.rate.Tokens() >= float64(use.burst)) {
			delete(l.namespaces, name)
		}
	}
}

func (l *Limiter) add(to *int, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*to += n
}
