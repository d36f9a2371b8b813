package node

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// A node that does not act answers two kinds of requests from its own ledger: final receipts, and events. It says no to nobody:
// every other answer, and every request that its view is too old for, is the leader's.

// maxTokenAge is how old the view of a node may be that judges a token by its own documents.
const maxTokenAge = time.Minute

// applied is the answer to appliedPath.
type applied struct {
	Index uint64 `json:"index"` // of the last entry that the leader had applied
}

// freshness says up to when a node's view is complete. It is not changed.
type freshness struct {
	index  uint64    // that the leader named
	asked  time.Time // when the leader was asked: everything acknowledged before is in the entries up to index
	before time.Time // asked of the answer before, whose index this node has applied; zero: none
}

// next returns the freshness after a newer answer, at a node that has applied the entries up to own. The nil freshness has no answer
// yet. An answer is kept until this node has applied its index: one that is always a little behind would never get there else.
func (f *freshness) next(newer freshness, own uint64) *freshness {
	if f != nil {
		if own < f.index {
			return f
		}
		newer.before = f.asked
	}
	return &newer
}

// completeAt returns the time up to which a view is complete that has the entries up to own; zero: not known.
func (f *freshness) completeAt(own uint64) time.Time {
	switch {
	case f == nil:
		return time.Time{}
	case own >= f.index:
		return f.asked
	}
	return f.before
}

// askApplied asks the leader which entries it has applied.
func (p *poller) askApplied(ctx context.Context) {
	c := p.cluster
	leader := p.store.Leader()
	if leader == "" || leader == c.name() {
		return
	}
	var answer applied
	asked := time.Now()
	if c.ask(ctx, leader, appliedPath, &answer) == nil {
		c.fresh.Store(c.fresh.Load().next(freshness{index: answer.Index, asked: asked}, p.store.LastApplied().Index))
	}
}

// serveApplied answers which entries this node has applied, if it acts and a majority confirms that now: no other node has
// acknowledged anything that is not in them. The node's own view is as complete, for the time after its term.
func (p peerAPI) serveApplied(w http.ResponseWriter, r *http.Request) {
	a, asked := p.act.Load(), time.Now()
	if a == nil || a.check.stillLeads(r.Context()) != nil || a.over() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	answer := applied{p.store.LastApplied().Index}
	p.cluster.fresh.Store(&freshness{index: answer.Index, asked: asked})
	writeAnswer(w, answer)
}

// viewAge returns how long ago this node's view was complete; false: not known.
func (f *forwarder) viewAge() (age time.Duration, known bool) {
	if f.n.act.Load() != nil {
		return 0, true
	}
	at := f.n.cluster.fresh.Load().completeAt(f.n.store.LastApplied().Index)
	return time.Since(at), !at.IsZero()
}

// mayAnswer reports whether this node's view is known, and new enough to judge tokens by if it asks for them.
func (f *forwarder) mayAnswer() bool {
	age, known := f.viewAge()
	return known && (f.n.cfg.NoCredentials || age <= maxTokenAge)
}

// readAPI serves what a node that does not lead answers from its own ledger.
func (f *forwarder) readAPI() http.Handler {
	a := &actor{node: f.n}
	if !f.n.cfg.NoCredentials {
		a.tokens = auth.NewDirectory(f.n.store, f.n.cfg.Logger)
		a.limits = auth.NewLimiter(a.tokens, f.n.store, auth.NodeLimits{})
	}
	a.remote = replayer{replays: remote.NewReplays(remote.Config{Ledger: f.n.store, Reader: f.n.store, Events: f.n.events})}
	cfg := a.apiConfig()
	cfg.Cluster.Follower = f.mayAnswer
	cfg.Cluster.LedgerBehind = func(context.Context, wire.Index) (bool, error) { return true, nil } // the leader judges what this node has not applied
	return f.n.traces.Calls(httpapi.New(cfg), f.n.store, true)
}

// replayer serves opens of keys with a final receipt. No other method is called.
type replayer struct {
	httpapi.Remote
	replays remote.Replays
}

// Open implements httpapi.Remote.
func (r replayer) Open(_ context.Context, req remote.OpenRequest) (remote.OpenAnswer, error) {
	return r.replays.Open(req)
}

// answerIfFinal writes the answer of a node that does not lead, unless its status means that the leader has to be asked.
type answerIfFinal struct {
	http.ResponseWriter
	begun, declined bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answerIfFinal) WriteHeader(status int) {
	if a.begun {
		return
	}
	a.begun = true
	if a.declined = status != http.StatusOK && status != http.StatusNotModified && status != http.StatusFailedDependency; !a.declined {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	header := a.Header()
	for name := range header {
		if name != wire.HeaderNode {
			delete(header, name)
		}
	}
}

// Write implements http.ResponseWriter.
func (a *answerIfFinal) Write(p []byte) (int, error) {
	if a.WriteHeader(http.StatusOK); a.declined {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the underlying writer.
func (a *answerIfFinal) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// answerHere answers a request from this node's own ledger. If it returns false, nothing was answered, and the request is as it was.
func (f *forwarder) answerHere(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if !f.mayAnswer() {
		return false
	}
	age, _ := f.viewAge()
	if leader := f.n.store.Leader(); leader != "" {
		w.Header().Set(wire.HeaderLeader, leader)
	}
	if age >= time.Second {
		w.Header().Set(wire.HeaderAge, strconv.Itoa(int(age.Seconds())))
	}
	answer := &answerIfFinal{ResponseWriter: w}
	f.reads.ServeHTTP(answer, r)
	if answer.declined && body != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return !answer.declined
}
