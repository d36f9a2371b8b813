package cluster

import (
	"strings"
	"sync"
	"time"
)

// The recoveries of the keys. The name of a key begins with that of its recovery.
const (
	recoveryHold   = "hold"
	recoveryResend = "resend"
	recoveryVerify = "verify"
)

// The results of a call.
const (
	resultSucceeded   = "succeeded"
	resultInDoubt     = "in_doubt"
	resultUnavailable = "unavailable" // no node could decide, or the wait is over: calling again is safe
	resultUnrecorded  = "unrecorded"  // the effect happened, and its report is on its way
	resultFenced      = "fenced"      // the attempt was lost and a newer one decides: calling again is safe
	resultOther       = "other"       // any other error
)

// Effect is one request that reached the provider. The provider acts on it unless it is a repeat.
type Effect struct {
	Key            string
	IdempotencyKey string
	FencingToken   string
	At             time.Time // of its arrival, when the effect happens
	Lasts          time.Duration
	Repeat         bool   // the provider knew the idempotency key and did nothing
	Body           string // the provider's answer
	Agent          string // the User-Agent header: the language of the caller
}

// Call is what a caller was told about a key.
type Call struct {
	Key     string
	Caller  string
	Began   time.Time
	Ended   time.Time
	Lasts   time.Duration // of the effect, if this call performs it
	Result  string
	Source  string // of a success
	Attempt uint32
	Body    string // of a success, byte for byte
	Digest  string
	Err     string
}

// Reading is what one node says about a key when the experiment is over.
type Reading struct {
	Key      string
	Node     string
	Source   string
	Body     string
	Digest   string
	State    string
	Attempts uint32
	Overlap  bool
	Evidence int
	Lost     int // attempts that were declared lost; only the first node is asked for them
	Err      string
}

// Probe is the answer of a node that was cut off, to a request that was sent to it alone.
type Probe struct {
	Node   string
	Key    string
	Open   bool // an open of a new key; else a read of an acknowledged one
	Began  time.Time
	Ended  time.Time
	Answer string // decision or state, else the code of the error
	Digest string
	Err    string
}

// History is everything that an experiment has seen. Its methods may be called concurrently.
type History struct {
	mu       sync.Mutex // guards the fields below while the experiment runs
	Effects  []Effect
	Calls    []Call
	Readings []Reading
	Probes   []Probe
	JobEnds  []JobEnd
	Spooled  []string      // files of reports that are left when the experiment is over
	Healed   time.Time     // when the last fault was healed
	Session  time.Duration // the time to live of the callers' sessions
	Nodes    []string
	// MayEnd says that sessions may have ended, and attempts with them: etcd or the ledger had no majority for longer than a session
	// lives.
	MayEnd bool
}

func (h *History) addEffect(e Effect) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Effects = append(h.Effects, e)
}

// longestGap returns the longest time between two moments in which no effect happened.
func (h *History) longestGap(from, to time.Time) (longest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := from
	for _, e := range h.Effects { // in the order of their arrival, nearly
		if e.At.After(last) && e.At.Before(to) {
			longest, last = max(longest, e.At.Sub(last)), e.At
		}
	}
	return max(longest, to.Sub(last))
}

// firstFlightAfter returns how long after a moment the first effect of a key happened that was first called after it.
func (h *History) firstFlightAfter(moment time.Time) (after time.Duration, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	began := make(map[string]time.Time) // of the first call of each key
	executed := make(map[string]bool)   // else the call that opened the flight has not ended, and is not known
	for i := range h.Calls {
		c := &h.Calls[i]
		executed[c.Key] = executed[c.Key] || c.Source == "executed"
		if first, known := began[c.Key]; !known || c.Began.Before(first) {
			began[c.Key] = c.Began
		}
	}
	for _, e := range h.Effects {
		first, known := began[e.Key]
		if passed := e.At.Sub(moment); known && executed[e.Key] && first.After(moment) && (!found || passed < after) {
			after, found = passed, true
		}
	}
	return after, found
}

// recoveryOf returns the recovery of a key.
func recoveryOf(key string) string {
	_, name, _ := strings.Cut(key, "/")
	recovery, _, _ := strings.Cut(name, "/")
	return recovery
}
