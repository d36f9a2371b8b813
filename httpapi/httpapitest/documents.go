package httpapitest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/auth"
)

var (
	_ httpapi.Documents = ledger{}
	_ auth.Documents    = ledger{}
)

// applyDocument applies a command about a document.
func (fa *Fake) applyDocument(c flight.Command, id flight.DocumentID, kind flight.EventKind) (flight.Reply, error) {
	encoded, err := flight.Encode(c)
	if err != nil {
		return flight.Reply{}, err
	}
	if c, err = flight.Decode(encoded); err != nil {
		return flight.Reply{}, err
	}
	if _, err := fa.Ledger.Propose(context.Background(), &flight.Tick{}); err != nil { // gets the version of the command
		return flight.Reply{}, err
	}
	due := fa.due()
	fa.mu.Lock()
	defer fa.mu.Unlock()
	h := fa.Ledger.Header()
	reply := fa.documents.Apply(&h, due, c)
	if reply.Changed {
		fa.documentsVersion = h.Version
		fa.feed = append(fa.feed, flight.FeedEvent{Document: id, HistoryEvent: flight.HistoryEvent{Version: h.Version, Event: flight.Event{Kind: kind, At: h.Now}}})
		fa.recordAudit(c, h.Version, h.Now)
	}
	return reply, nil
}

// recordAudit adds the line of a command to the audit log. The caller holds the lock.
func (fa *Fake) recordAudit(c flight.Command, version flight.Version, at flight.Time) {
	if e, ok := flight.Audit(c, at); ok {
		e.Version = version
		fa.audit = append(fa.audit, e)
	}
}

func (l ledger) Documents(kind string) []*flight.Document {
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	return l.fake.documents.List(kind)
}

func (l ledger) Document(id flight.DocumentID) *flight.Document {
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	return l.fake.documents.Get(id)
}

func (l ledger) DocumentsVersion() flight.Version {
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	return l.fake.documentsVersion
}

// maxAuditScan bounds the entries that one call of Audit reads. The ledger's bound is higher.
const maxAuditScan = 100

func (l ledger) Audit(before flight.Version, limit int, match func(*flight.AuditEntry) bool) (entries []flight.AuditEntry, next flight.Version, err error) {
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	scanned := 0
	for _, e := range slices.Backward(l.fake.audit) {
		if before != (flight.Version{}) && !before.After(e.Version) {
			continue
		}
		matches := match(&e)
		if scanned == maxAuditScan || matches && len(entries) == limit {
			return entries, next, nil
		}
		if matches {
			entries = append(entries, e)
		}
		scanned, next = scanned+1, e.Version
	}
	return entries, flight.Version{}, nil
}

// due returns the table of the flights.
func (fa *Fake) due() *flight.Due {
	due := flight.NewDue()
	for _, key := range fa.usedKeys() {
		if f, err := fa.Ledger.Flight(key.FlightID()); err == nil {
			due.Update(nil, f)
		}
	}
	return due
}

func (l ledger) SagasOf(definition flight.DocumentID) int { return l.fake.due().SagasOf(definition) }

// lacksDefinition reports whether the command starts a saga, of a key that was never used, whose definition is not stored.
func (fa *Fake) lacksDefinition(c flight.Command) bool {
	fa.mu.Lock()
	lacks := fa.documents.LackDefinition(c)
	fa.mu.Unlock()
	f, err := fa.Ledger.Flight(c.Target().FlightID())
	return lacks && err == nil && f == nil
}

func (l ledger) HeldIn(namespace string) (n int) {
	for _, key := range l.fake.usedKeys() {
		if f, err := l.Flight(key.FlightID()); err == nil && f.Holder() != nil && key.Namespace() == namespace {
			n++
		}
	}
	return n
}

func (l ledger) StoredIn(namespace string) (n int64) {
	for _, key := range l.fake.usedKeys() {
		if f, err := l.Flight(key.FlightID()); err == nil && f != nil && !f.Key.IsZero() && key.Namespace() == namespace {
			n++
		}
	}
	return n
}

func (l ledger) Stored() (flights map[string]int64, tombstones int64) {
	flights = make(map[string]int64)
	for _, key := range l.fake.usedKeys() {
		switch f, err := l.Flight(key.FlightID()); {
		case err != nil || f == nil:
		case f.State == flight.StateExpired:
			tombstones++
		default:
			flights[key.Namespace()]++
		}
	}
	return flights, tombstones
}

// UseCredentials makes the configuration one of a server that needs credentials, with limits from the documents. The
// service for remote callers applies the limits, too.
func (fa *Fake) UseCredentials(cfg *httpapi.Config, node auth.NodeLimits) {
	l := ledger{fa.Ledger, fa}
	cfg.Callers.Auth = auth.NewDirectory(l, cfg.Logger)
	cfg.Callers.Limits = auth.NewLimiter(cfg.Callers.Auth, l, node)
	fa.mu.Lock()
	defer fa.mu.Unlock()
	fa.limits = cfg.Callers.Limits
}

// Issue stores a token and returns its new secret. The token has no other secret.
func (fa *Fake) Issue(tb testing.TB, namespace, name string, verbs auth.Verbs, life time.Duration) string {
	tb.Helper()
	l := ledger{fa.Ledger, fa}
	token, now := &auth.Token{Verbs: verbs}, l.Now()
	var expires flight.Time
	if life != 0 {
		expires = now.Add(life)
	}
	secret, err := token.Issue(namespace, now, expires, 0)
	if err != nil {
		tb.Fatalf("httpapitest: %v", err)
	}
	fa.PutDocument(tb, auth.TokenID(namespace, name), token.Encode())
	return secret
}

// PutDocument stores a document, also in place of another version.
func (fa *Fake) PutDocument(tb testing.TB, id flight.DocumentID, body []byte) {
	tb.Helper()
	put := &flight.PutDocument{ID: id, Body: body}
	if old := (ledger{fa.Ledger, fa}).Document(id); old != nil {
		put.Expect = old.Version
	}
	fa.Apply(tb, put)
}

// remoteLimits are the limits of the service for remote callers. Before UseCredentials there are none.
type remoteLimits struct{ fake *Fake }

func (r remoteLimits) current() *auth.Limiter {
	r.fake.mu.Lock()
	defer r.fake.mu.Unlock()
	return r.fake.limits
}

// AllowAttempt implements remote.Limits.
func (r remoteLimits) AllowAttempt(key flight.Key, newKey bool) error {
	return r.current().AllowAttempt(key, newKey)
}

// AllowWork implements remote.Limits.
func (r remoteLimits) AllowWork(namespace string) error { return r.current().AllowWork(namespace) }

// StartWait implements remote.Limits.
func (r remoteLimits) StartWait(namespace string, open bool) (end func(), ok bool) {
	return r.current().StartWait(namespace, open)
}
