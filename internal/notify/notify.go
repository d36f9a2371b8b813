package notify

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
)

// Ledger is what a Notifier reads and changes.
type Ledger interface {
	Documents
	Flights
	Feed
}

// Documents are the targets and their positions.
type Documents interface {
	Documents(kind string) []*flight.Document
	Document(id flight.DocumentID) *flight.Document
	Propose(ctx context.Context, c flight.Command) (flight.Reply, error)
	Header() flight.Header
	Now() flight.Time
}

// Flights are the flights that messages describe.
type Flights interface {
	Flight(id flight.ID) (*flight.Flight, error)
	Input(f *flight.Flight) ([]byte, error)
	History(id flight.ID) ([]flight.HistoryEvent, error)
	List(q flight.Query) (flight.Page, error)
}

// Feed has the events, as httpapi.Feed.
type Feed interface {
	Read(after flight.Version, limit int) (flight.FeedPage, error)
	End() (flight.Version, error)
	Await(ctx context.Context, after flight.Version) error
}

// Queue is a queue whose oldest job is ready since Oldest; 0: it has no ready job.
type Queue struct {
	Namespace, Action string
	Oldest            flight.Time
}

// Config has the dependencies of a Notifier. None has a default.
type Config struct {
	Ledger Ledger
	// Node is the name of this node; Queues and Quarantined are what it sees: its queues that are not paused, and the files of its spool.
	Node        string
	Queues      iter.Seq[Queue]
	Quarantined func() []string
	PublicURL   string // of links; "": messages without a link of their target have none
	// Private lets targets be in private networks, Loopback on this machine.
	Private, Loopback bool
	Wall              func() time.Time
	Sent              func(event, result string) // for metrics; result: delivered, failed or rejected
	Logger            *slog.Logger
}

// Notifier posts to all targets. Its methods are safe for concurrent use.
type Notifier struct {
	cfg    Config
	client *http.Client

	mu      sync.Mutex
	failing map[string]wire.NotifyFailure // by target, since this node leads
}

// New returns a Notifier that does nothing until Run.
func New(cfg Config) *Notifier {
	return &Notifier{cfg: cfg, failing: make(map[string]wire.NotifyFailure), client: newClient(func(a netip.Addr) bool {
		return isPublic(a) || cfg.Loopback && a.IsLoopback() || cfg.Private && (a.IsLoopback() || a.IsPrivate() || netip.MustParsePrefix("100.64.0.0/10").Contains(a))
	})}
}

// targetsEvery is how often Run looks for targets that were changed.
const targetsEvery = 250 * time.Millisecond

// Run notifies each target in a goroutine of its own, so that one that does not answer delays no other, until ctx ends. It starts and
// stops them as their documents change, and deletes the position of a target that is no more.
func (n *Notifier) Run(ctx context.Context) {
	type running struct {
		version flight.Version
		end     context.CancelFunc
		ended   chan struct{}
	}
	all := map[string]*running{}
	stop := func(name string) {
		all[name].end()
		<-all[name].ended
		delete(all, name)
	}
	for clock.Sleep(ctx, targetsEvery) {
		there := map[string]bool{}
		for _, doc := range n.cfg.Ledger.Documents(flight.KindNotify) {
			name := doc.ID.Name
			there[name] = true
			if r := all[name]; r != nil && r.version == doc.Version {
				continue
			}
			if all[name] != nil {
				stop(name)
			}
			t, err := DecodeTarget(doc)
			if err != nil {
				n.fail(name, err)
				continue
			}
			inside, end := context.WithCancel(ctx)
			r := &running{doc.Version, end, make(chan struct{})}
			all[name] = r
			go func() {
				defer close(r.ended)
				n.follow(inside, name, t)
			}()
		}
		for name := range all {
			if !there[name] {
				stop(name)
			}
		}
		for _, doc := range n.cfg.Ledger.Documents(flight.KindNotified) {
			if !there[doc.ID.Name] { // an error is repeated
				_, _ = n.cfg.Ledger.Propose(ctx, &flight.DeleteDocument{ID: doc.ID, Expect: doc.Version})
			}
		}
		n.forget(there)
	}
	for name := range all {
		stop(name)
	}
}

// Failing returns since when each target that has not taken its newest message has not, and why.
func (n *Notifier) Failing() map[string]wire.NotifyFailure {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]wire.NotifyFailure, len(n.failing))
	for name, f := range n.failing {
		all[name] = f
	}
	return all
}

func (n *Notifier) fail(name string, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, before := n.failing[name]
	if !before {
		f.Since = wire.Time{Time: n.cfg.Wall().UTC()}
		n.cfg.Logger.Warn("a target does not take its notifications; they are retried", "target", name, "error", why)
	}
	f.Error = why.Error()
	n.failing[name] = f
}

func (n *Notifier) succeed(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.failing, name)
}

// forget drops the failures of targets that are no more.
func (n *Notifier) forget(there map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.failing {
		if !there[name] {
			delete(n.failing, name)
		}
	}
}

// Test posts a message of the type test to a target, once, and says what became of it.
func (n *Notifier) Test(ctx context.Context, doc *flight.Document) (wire.NotifyTestAnswer, error) {
	t, err := DecodeTarget(doc)
	if err != nil {
		return wire.NotifyTestAnswer{}, err
	}
	began := n.cfg.Wall()
	m := message{Type: wire.NotifyTest, Timestamp: began.UTC().Format(time.RFC3339Nano), Text: "This is a test of flightd notify: the target " + doc.ID.Name + " takes notifications."}
	out := wire.NotifyTestAnswer{ID: n.id(doc.ID.Name, t.Since, wire.NotifyTest, began.String())}
	if out.Status, err = n.post(ctx, t, out.ID, m.encode()); err != nil {
		out.Error = err.Error()
	} else {
		n.succeed(doc.ID.Name) // until the next message fails
	}
	out.TookMS = n.cfg.Wall().Sub(began).Milliseconds()
	return out, nil
}
