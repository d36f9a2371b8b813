package cluster

import (
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/chaos/linear"
)

// The recoveries of the keys. The name of a key begins with that of its recovery.
const (
	recoveryHold   = "hold"
	recoveryResend = "resend"
	recoveryVerify = "verify"
)

var recoveries = [...]string{recoveryHold, recoveryResend, recoveryVerify}

// The results of a call.
const (
	resultSucceeded   = "succeeded"
	resultInDoubt     = "in_doubt"
	resultUnavailable = "unavailable" // no node could decide, or the wait is over: calling again is safe
	resultUnrecorded  = "unrecorded"  // the effect happened, and its report is on its way
	resultUnsettled   = "unsettled"   // the outcome is unknown, and the next attempt will settle it: calling again is safe
	resultSuspended   = "suspended"   // the effect was started, and the provider calls back: calling again waits for that
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
	Trouble        string // in which way the provider failed this request; "": it did not
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
	Overlap  bool
	Evidence int
	Lost     int // attempts that were declared lost; only the first node is asked for them
	Err      string
}

// History is everything that an experiment has seen. Its methods may be called concurrently.
type History struct {
	mu        sync.Mutex // guards the fields below while the experiment runs
	Effects   []Effect
	Calls     []Call
	Readings  []Reading
	JobEnds   []JobEnd
	SagaEnds  []SagaEnd
	Execs     []Exec
	Approvals []ApprovalEnd
	Ops       []linear.Op
	Conflicts int           // calls that were refused because of another input
	Healed    time.Time     // when the last fault was healed
	Session   time.Duration // the time to live of the callers' sessions
	Nodes     []string
	// MayEnd says that sessions may have ended, and attempts with them: etcd or the ledger had no majority for longer than a session
	// lives.
	MayEnd bool
}

// byKey returns the effects of each key.
func byKey(effects []Effect) map[string][]Effect {
	of := make(map[string][]Effect)
	for _, e := range effects {
		of[e.Key] = append(of[e.Key], e)
	}
	return of
}

func (h *History) addEffect(e Effect) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Effects = append(h.Effects, e)
}

// add stores an event of the callers.
func (h *History) add(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case e.Call != nil:
		h.Calls = append(h.Calls, *e.Call)
	case e.Reading != nil:
		h.Readings = append(h.Readings, *e.Reading)
	case e.JobEnd != nil:
		h.JobEnds = append(h.JobEnds, *e.JobEnd)
	case e.ApprovalEnd != nil:
		h.Approvals = append(h.Approvals, *e.ApprovalEnd)
	case e.Op != nil:
		h.Ops = append(h.Ops, *e.Op)
	case e.Conflict:
		h.Conflicts++
	case e.SagaEnd != nil:
		h.SagaEnds = append(h.SagaEnds, *e.SagaEnd)
	}
}

// countKeys returns how many keys with this part had an effect in the last minute.
func (h *History) countKeys(part string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := make(map[string]bool)
	for i := len(h.Effects) - 1; i >= 0 && time.Since(h.Effects[i].At) < time.Minute; i-- {
		if strings.Contains(h.Effects[i].Key, part) {
			keys[h.Effects[i].Key] = true
		}
	}
	return len(keys)
}

// keys returns every key that was called, once, in the order of first calls.
func (h *History) keys() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := make(map[string]bool)
	for i := range h.Calls {
		if key := h.Calls[i].Key; !known[key] {
			known[key] = true
			all = append(all, key)
		}
	}
	return all
}

// event is a line that the process of the callers writes: one of its fields is set.
type event struct {
	Call        *Call        `json:",omitempty"`
	Reading     *Reading     `json:",omitempty"`
	JobEnd      *JobEnd      `json:",omitempty"`
	SagaEnd     *SagaEnd     `json:",omitempty"`
	ApprovalEnd *ApprovalEnd `json:",omitempty"`
	Op          *linear.Op   `json:",omitempty"`
	Conflict    bool         `json:",omitempty"` // a call was refused because of another input
	Done        string       `json:",omitempty"` // the name of an order that was carried out
}

// firstFlightAfter returns how long after a moment the first effect happened of a key of the order pace that was first called after it.
func (h *History) firstFlightAfter(moment time.Time) (after time.Duration, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	began := make(map[string]time.Time) // of the first call of each key
	for i := len(h.Calls) - 1; i >= 0 && h.Calls[i].Ended.After(moment); i-- {
		if c := &h.Calls[i]; strings.Contains(c.Key, "/pace-") {
			began[c.Key] = c.Began // calls of a key end in the order of their starts
		}
	}
	for i := len(h.Effects) - 1; i >= 0; i-- { // in the order of their arrival, nearly
		e := &h.Effects[i]
		if e.At.Before(moment.Add(-time.Second)) {
			break
		}
		if first, known := began[e.Key]; known && first.After(moment) {
			after, found = e.At.Sub(moment), true
		}
	}
	return after, found
}

// recoveryOf returns the recovery of a key. The name of a step ends with it, and every undo is sent again.
func recoveryOf(key string) string {
	if _, step, isStep := strings.Cut(key, "#"); isStep {
		if strings.HasSuffix(step, ".undo") {
			return recoveryResend
		}
		return step[strings.LastIndexByte(step, '-')+1:]
	}
	_, name, _ := strings.Cut(key, "/")
	recovery, _, _ := strings.Cut(name, "/")
	return recovery
}

// Exec is what a run of flightd exec has shown.
type Exec struct {
	Key    string
	Ended  time.Time
	Output string
	Err    string
}
