// Package httpapitest runs the HTTP API on an in-memory flightd, for tests of the API and of its clients. The rules of
// package flight, the executor and the service for remote callers are real, on package flightdtest. This package adds
// lists, histories and the event feed.
package httpapitest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// Fake is an in-memory flightd and its HTTP API.
type Fake struct {
	*flightdtest.Flightd

	mu         sync.Mutex // guards the fields below
	keys       map[flight.ID]flight.Key
	history    map[flight.ID][]flight.HistoryEvent
	feed       []flight.FeedEvent // sorted by version
	duplicates map[flight.ID]flight.DuplicateStats
	changed    chan struct{} // closed and replaced by the next event
	faults     Faults

	documents        flight.Documents
	documentsVersion flight.Version
	audit            []flight.AuditEntry
	limits           *auth.Limiter // of the server that UseCredentials has configured
}

// Faults change the behaviour of the fake. The zero value changes nothing.
type Faults struct {
	Trust      time.Duration // validity of sessions; 0: as the service grants
	RenewEvery time.Duration // 0: as the service asks
	// Before is called with the name of the method at the start of each call of a remote caller or an operator. If it
	// returns an error, the call returns that error.
	Before func(ctx context.Context, method string) error
	// OnRenewed is called after each successful renewal.
	OnRenewed func(id flight.SessionID, what remote.RenewRequest)
	NotReady  string // the reason why the node is not ready; "": it is ready
	// CompactedAt is the position up to which the feed has no events.
	CompactedAt flight.Version
}

// New returns an empty fake that is closed at the end of the test.
func New(tb testing.TB) *Fake { return Open(tb, flightdtest.Options{}) }

// Open returns a fake with options.
func Open(tb testing.TB, o flightdtest.Options) *Fake {
	tb.Helper()
	w := &Fake{keys: make(map[flight.ID]flight.Key), history: make(map[flight.ID][]flight.HistoryEvent),
		duplicates: make(map[flight.ID]flight.DuplicateStats), changed: make(chan struct{}), limits: auth.NewLimiter(nil, nil, auth.NodeLimits{})}
	configure, configureRemote := o.Configure, o.ConfigureRemote
	o.Configure = func(c *executor.Config) {
		c.Ledger = recorder{c.Ledger, w}
		if configure != nil {
			configure(c)
		}
	}
	o.ConfigureRemote = func(c *remote.Config) {
		c.Ledger, c.Limits = recorder{c.Ledger, w}, remoteLimits{w}
		if configureRemote != nil {
			configureRemote(c)
		}
	}
	o.Paused = func(namespace, action string) bool {
		return ledger{fake: w}.Document(flight.QueueID(namespace, action)) != nil
	}
	w.Flightd = flightdtest.Open(tb, o)
	return w
}

// Config returns the configuration of the HTTP API on this fake.
func (fa *Fake) Config() httpapi.Config {
	l := ledger{fa.Ledger, fa}
	return httpapi.Config{Remote: service{fa}, Work: httpapi.Work{Pools: pools{fa.Pools(), fa}}, Callers: httpapi.Callers{PublicURL: "http://flightd.test"}, Ledger: l, Operator: l, Documents: l, Events: httpapi.Events{Feed: l, Duplicates: l},
		Cluster: httpapi.Cluster{RaiseLeaseEpoch: func(context.Context, string, string) error { return nil }},
		About:   httpapi.About{Ready: fa.ready, Version: wire.Version{Version: "test", Deployment: fa.Ledger.Header().Deployment}}}
}

// SetFaults changes the faults.
func (fa *Fake) SetFaults(change func(*Faults)) {
	fa.mu.Lock()
	defer fa.mu.Unlock()
	change(&fa.faults)
}

func (fa *Fake) currentFaults() Faults {
	fa.mu.Lock()
	defer fa.mu.Unlock()
	return fa.faults
}

// Apply proposes a command. The test fails if the ledger returns an error.
func (fa *Fake) Apply(tb testing.TB, c flight.Command) flight.Reply {
	tb.Helper()
	reply, err := recorder{fa.Ledger, fa}.Propose(context.Background(), c)
	if err != nil {
		tb.Fatalf("httpapitest: %v", err)
	}
	return reply
}

// ExpireSession ends a session as if its owner had not renewed it, and runs the sweeper.
func (fa *Fake) ExpireSession(tb testing.TB, id flight.SessionID) {
	tb.Helper()
	if err := fa.Leases.EndSession(context.Background(), id); err != nil {
		tb.Fatalf("httpapitest: end session %s: %v", id, err)
	}
	if err := fa.Sweeper.Sweep(context.Background()); err != nil {
		tb.Fatalf("httpapitest: sweep: %v", err)
	}
}

// Snapshot describes all flights of the ledger, for tests that require that nothing has changed.
func (fa *Fake) Snapshot() string {
	var lines []string
	for _, key := range fa.usedKeys() {
		f, _ := fa.Ledger.Flight(key.FlightID())
		lines = append(lines, fmt.Sprintf("%s %s %s %d %d", key, f.State, f.Version, len(f.UsedNonces), len(f.Evidence)))
	}
	for _, doc := range (ledger{fa.Ledger, fa}).Documents("") {
		lines = append(lines, fmt.Sprintf("%s %s", doc.ID, doc.Version))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// DuplicateStats returns the duplicate statistics of a flight.
func (fa *Fake) DuplicateStats(id flight.ID) flight.DuplicateStats {
	fa.mu.Lock()
	defer fa.mu.Unlock()
	return fa.duplicates[id]
}

func (fa *Fake) ready(context.Context) wire.Ready {
	why := fa.currentFaults().NotReady
	return wire.Ready{Ready: why == "", Checks: []wire.Check{{Name: "world", OK: why == "", Error: why}}}
}

func (fa *Fake) beforeCall(ctx context.Context, method string) error {
	if before := fa.currentFaults().Before; before != nil {
		return before(ctx, method)
	}
	return nil
}

// recorder is a ledger that reports each command to the fake.
type recorder struct {
	executor.Ledger
	fake *Fake
}

func (r recorder) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if id, kind, ok := flight.DocumentEvent(c); ok {
		return r.fake.applyDocument(c, id, kind)
	}
	if r.fake.lacksDefinition(c) {
		return flight.Reply{Decision: flight.DecisionNotFound}, nil
	}
	r.fake.addKey(c.Target())
	reply, err := r.Ledger.Propose(ctx, c)
	r.fake.recordEvents(c.Target())
	if reply.Changed {
		r.fake.mu.Lock()
		r.fake.recordAudit(c, r.fake.Ledger.Header().Version, r.fake.Ledger.Now())
		r.fake.mu.Unlock()
	}
	return reply, err
}

func (r recorder) Report(ctx context.Context, c *flight.Report) (flight.Reply, error) {
	r.fake.addKey(c.Key)
	reply, err := r.Ledger.Report(ctx, c)
	r.fake.recordEvents(c.Key)
	return reply, err
}

// addKey adds a key before a command on it is applied, so that readers of the feed record its events.
func (fa *Fake) addKey(key flight.Key) {
	fa.mu.Lock()
	defer fa.mu.Unlock()
	if !key.IsZero() {
		fa.keys[key.FlightID()] = key
	}
}

// recordEvents adds the new events of a key to its history and to the feed. The fake ledger does not return the version
// of each event, so all new events get the flight's current version.
func (fa *Fake) recordEvents(key flight.Key) {
	if key.IsZero() {
		return
	}
	id := key.FlightID()
	fa.mu.Lock()
	defer fa.mu.Unlock()
	f, err := fa.Ledger.Flight(id)
	if err != nil || f == nil {
		return
	}
	events := fa.Ledger.History(key)[len(fa.history[id]):]
	for _, e := range events {
		event := flight.HistoryEvent{Version: f.Version, Event: e}
		fa.history[id] = append(fa.history[id], event)
		fa.feed = append(fa.feed, flight.FeedEvent{Key: key, HistoryEvent: event})
	}
	if len(events) > 0 {
		slices.SortStableFunc(fa.feed, func(a, b flight.FeedEvent) int {
			return cmp.Or(cmp.Compare(a.Version.Index, b.Version.Index), cmp.Compare(a.Version.Pos, b.Version.Pos))
		})
		close(fa.changed)
		fa.changed = make(chan struct{})
	}
}

// usedKeys returns all keys that were ever used. First it records the events that the sweeper has caused.
func (fa *Fake) usedKeys() []flight.Key {
	fa.mu.Lock()
	keys := make([]flight.Key, 0, len(fa.keys))
	for _, key := range fa.keys {
		keys = append(keys, key)
	}
	fa.mu.Unlock()
	for _, key := range keys {
		fa.recordEvents(key)
	}
	fa.mu.Lock()
	defer fa.mu.Unlock()
	return slices.DeleteFunc(keys, func(key flight.Key) bool { return len(fa.history[key.FlightID()]) == 0 })
}
