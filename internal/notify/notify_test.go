package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// fakeLedger has the events of its flights and the documents of the targets.
type fakeLedger struct {
	Ledger
	mu        sync.Mutex
	documents map[flight.DocumentID]*flight.Document
	flights   map[flight.ID]*flight.Flight
	events    []flight.FeedEvent
	first     flight.Version // of the log
	version   uint64
	changed   chan struct{} // closed by the next change
	puts      int
	largest   int  // document
	lost      bool // proposals fail
	inputs    map[flight.ID]string
}

func newFakeLedger() *fakeLedger {
	return &fakeLedger{documents: map[flight.DocumentID]*flight.Document{}, flights: map[flight.ID]*flight.Flight{}, inputs: map[flight.ID]string{}, changed: make(chan struct{})}
}

// nextVersion raises the version and wakes Await. The caller holds mu.
func (l *fakeLedger) nextVersion() {
	l.version++
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *fakeLedger) Header() flight.Header { return flight.Header{} }
func (l *fakeLedger) Now() flight.Time      { return flight.Time(time.Now().UnixMilli()) }

func (l *fakeLedger) Documents(kind string) (all []*flight.Document) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.documents {
		if d.ID.Kind == kind {
			all = append(all, d)
		}
	}
	return all
}

func (l *fakeLedger) Document(id flight.DocumentID) *flight.Document {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.documents[id]
}

func (l *fakeLedger) Propose(_ context.Context, c flight.Command) (flight.Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return flight.Reply{}, errors.New("not the leader")
	}
	l.nextVersion()
	switch c := c.(type) {
	case *flight.PutDocument:
		l.puts++
		l.largest = max(l.largest, len(c.Body))
		l.documents[c.ID] = &flight.Document{ID: c.ID, Body: c.Body, Version: flight.Version{Index: l.version}}
	case *flight.DeleteDocument:
		delete(l.documents, c.ID)
	}
	return flight.Reply{Decision: flight.DecisionAccepted}, nil
}

func (l *fakeLedger) Flight(id flight.ID) (*flight.Flight, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flights[id], nil
}

func (l *fakeLedger) Input(f *flight.Flight) ([]byte, error) { return []byte(l.inputs[f.ID]), nil }

func (l *fakeLedger) History(id flight.ID) (all []flight.HistoryEvent, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Key.FlightID() == id {
			all = append(all, e.HistoryEvent)
		}
	}
	return all, nil
}

func (l *fakeLedger) List(q flight.Query) (p flight.Page, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flights {
		if q.Matches(f) {
			p.Flights = append(p.Flights, f)
		}
	}
	return p, nil
}

func (l *fakeLedger) Read(after flight.Version, _ int) (flight.FeedPage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first.After(after) {
		return flight.FeedPage{}, &flight.CompactedError{First: l.first}
	}
	page := flight.FeedPage{Next: flight.Version{Index: max(l.version, after.Index)}}
	for _, e := range l.events {
		if e.Version.After(after) {
			page.Events = append(page.Events, e)
		}
	}
	return page, nil
}

func (l *fakeLedger) End() (flight.Version, error) { return flight.Version{Index: l.version}, nil }

func (l *fakeLedger) Await(ctx context.Context, after flight.Version) error {
	for {
		l.mu.Lock()
		news, changed := l.version > after.Index, l.changed
		l.mu.Unlock()
		if news {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// happen adds an event of a flight. The action may begin with a namespace; otherwise the namespace is default.
func (l *fakeLedger) happen(t *testing.T, action, id string, kind flight.EventKind, state flight.State) flight.Key {
	namespace, name, ok := strings.Cut(action, "/")
	if !ok {
		namespace, name = "default", action
	}
	key, err := flight.NewKey(namespace, name, id)
	require.NoError(t, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextVersion()
	l.flights[key.FlightID()] = &flight.Flight{ID: key.FlightID(), Key: key, Generation: 1, State: state}
	l.events = append(l.events, flight.FeedEvent{Key: key, HistoryEvent: flight.HistoryEvent{Version: flight.Version{Index: l.version}, Event: flight.Event{Kind: kind, Generation: 1, At: l.Now()}}})
	return key
}

func (l *fakeLedger) target(name string, rules wire.NotifyRules) {
	body := (&wire.NotifyTarget{URL: "http://" + name + ".example.com/", Secret: wire.NewNotifySecret(), Since: "0.0", NotifyRules: rules}).Encode()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextVersion()
	id := flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindNotify, Name: name}
	l.documents[id] = &flight.Document{ID: id, Body: body, Version: flight.Version{Index: l.version}}
}

// hooks answers for all targets, without a network.
type hooks struct {
	mu     sync.Mutex
	status func(host string, m *message) int
	got    []string // "host type key id", of those that were answered 204
	tries  int

	retryAfter string
	messages   []message // of those that were answered 204
	times      []time.Time
}

func (h *hooks) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	var m message
	_ = json.Unmarshal(body, &m)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries++
	status := http.StatusNoContent
	if h.status != nil {
		status = h.status(r.Host, &m)
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	if status == http.StatusNoContent {
		h.messages, h.times = append(h.messages, m), append(h.times, time.Now())
	}
	if host, _, _ := strings.Cut(r.URL.Host, "."); status == http.StatusNoContent {
		h.got = append(h.got, fmt.Sprintf("%s %s %s%s%s", host, m.Type, m.Data.Key, m.Data.Report, m.Data.OldestSince), r.Header.Get("webhook-id"))
	}
	header := http.Header{}
	if h.retryAfter != "" {
		header.Set("Retry-After", h.retryAfter)
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(nil))}, nil
}

// taken returns the messages that were taken, and their ids.
func (h *hooks) taken() (messages, ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := 0; i < len(h.got); i += 2 {
		messages, ids = append(messages, h.got[i]), append(ids, h.got[i+1])
	}
	return messages, ids
}

// run lets a Notifier run for a while, and returns the targets that fail at its end.
func run(l *fakeLedger, h *hooks, change func(*Config), d time.Duration) map[string]wire.NotifyFailure {
	cfg := Config{Ledger: l, Node: "a", Queues: slices.Values([]Queue(nil)), Quarantined: func() []string { return nil }, Wall: time.Now, Sent: func(string, string) {}, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	n := New(cfg)
	n.client.Transport = h
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	n.Run(ctx)
	return n.Failing()
}

// Each event is notified once, although the process starts again, and a target that is down delays no other.
func TestEachEventOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, down := newFakeLedger(), true
		l.target("up", wire.NotifyRules{Events: []string{wire.NotifyInDoubt, wire.NotifyApproval}})
		l.target("down", wire.NotifyRules{Events: []string{wire.NotifyOverlap}})
		l.happen(t, "pay", "1", flight.EventInDoubt, flight.StateInDoubt)
		l.happen(t, "pay", "2", flight.EventOverlap, flight.StateSucceeded)
		l.happen(t, "pay", "3", flight.EventSubmitted, flight.StateAwaitingApproval)
		l.happen(t, "pay", "4", flight.EventSubmitted, flight.StateReady)
		h := &hooks{status: func(host string, _ *message) int {
			if down && strings.HasPrefix(host, "down") {
				return http.StatusBadGateway
			}
			return http.StatusNoContent
		}}
		run(l, h, nil, 20*time.Second)
		got, _ := h.taken()
		require.Equal(t, []string{"up flight.in_doubt default/pay/1", "up approval.waiting default/pay/3"}, got)
		require.LessOrEqual(t, l.puts, 3, "a stored position is not stored again")
		down = false
		run(l, h, nil, 20*time.Second)
		got, _ = h.taken()
		require.Equal(t, []string{"down flight.overlap default/pay/2"}, got[2:])
		puts := l.puts
		run(l, h, nil, 20*time.Second)
		require.Equal(t, puts, l.puts, "nothing happens, so nothing is stored")
		require.Len(t, h.got, 6)
	})
}

// A position that was not stored, and one that the log has lost, repeat messages under their ids; no doubt is forgotten.
func TestRepeatsHaveOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := newFakeLedger(), new(hooks)
		l.target("up", wire.NotifyRules{})
		l.happen(t, "pay", "1", flight.EventInDoubt, flight.StateInDoubt)
		l.happen(t, "trip", "1%23hotel", flight.EventInDoubt, flight.StateInDoubt)
		l.lost = true
		run(l, h, nil, 20*time.Second)
		l.lost = false
		run(l, h, nil, 20*time.Second)
		l.happen(t, "paid", "ended", flight.EventInDoubt, flight.StateSucceeded)
		l.first = flight.Version{Index: l.version + 10}
		l.version += 20
		run(l, h, nil, 20*time.Second)
		got, ids := h.taken()
		require.Len(t, got, 6)
		for i := 2; i < 6; i++ {
			require.Equal(t, ids[slices.Index(got, got[i])], ids[i], "a copy has another id")
		}
		require.NotEqual(t, ids[0], ids[1])
		require.NotContains(t, got, "up flight.in_doubt default/paid/ended", "it has ended, and the log has lost it")
		l.first = flight.Version{} // an older ledger was restored, and the same happens again, at the same place of the log
		delete(l.documents, notifiedID("up"))
		for i := range l.events {
			l.events[i].At++
		}
		run(l, h, nil, 20*time.Second)
		_, again := h.taken()
		require.Len(t, again, 9)
		for _, id := range again[6:] {
			require.NotContains(t, ids, id, "another event has the same id")
		}
	})
}

// A message that the target never takes does not delay others. After the target has taken others, the message is set aside: its doubt is
// counted in a message without its content, which also reports the rejection.
func TestPoisonedMessage(t *testing.T) {
	for _, status := range []int{0, 400, 403, 404, 410, 422, 429, 500, 503} {
		synctest.Test(t, func(t *testing.T) {
			l, results := newFakeLedger(), map[string]int{}
			l.target("up", wire.NotifyRules{})
			l.happen(t, "pay", "poison", flight.EventInDoubt, flight.StateInDoubt)
			h := &hooks{status: func(_ string, m *message) int {
				if strings.HasSuffix(m.Data.Key, "poison") {
					return status
				}
				return http.StatusNoContent
			}}
			count := func(c *Config) { c.Sent = func(_, result string) { results[result]++ } }
			failing := run(l, h, count, 5*time.Minute)
			require.Empty(t, h.got)
			require.Contains(t, failing, "up", "nobody else has proved that the target takes messages")
			require.Zero(t, results["rejected"], "it waits, because the target may be down")
			l.happen(t, "mail", "1", flight.EventInDoubt, flight.StateInDoubt)
			require.Contains(t, run(l, h, count, 5*time.Second), "up")
			got, _ := h.taken()
			require.Equal(t, []string{"up flight.in_doubt default/mail/1"}, got)
			l.happen(t, "post", "1", flight.EventOverlap, flight.StateSucceeded)
			require.Empty(t, run(l, h, count, 5*time.Minute))
			require.Equal(t, 1, results["rejected"])
			require.Equal(t, 3, results["delivered"])
			last := h.messages[2]
			require.Equal(t, []any{wire.NotifyInDoubt, 1, 1, "default", ""}, []any{last.Type, last.Data.Count, last.Data.Rejected, last.Data.Namespace, last.Data.Key})
			require.Contains(t, last.Text, "This target has rejected the messages of 1 of them.")
			require.NotContains(t, last.Text, "poison")
			require.Contains(t, last.Text, "flightd doubt ls -n default")
		})
	}
}

// A target that asks for a pause gets it, up to a bound.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"30": 30 * time.Second, "99999999": maxPause, "Fri, 31 Dec 9999 23:59:59 GMT": maxPause, "-5": 0, "soon": 0} {
		synctest.Test(t, func(t *testing.T) {
			l, tried := newFakeLedger(), []time.Time{}
			l.target("up", wire.NotifyRules{})
			l.happen(t, "pay", "1", flight.EventInDoubt, flight.StateInDoubt)
			l.happen(t, "mail", "1", flight.EventInDoubt, flight.StateInDoubt)
			h := &hooks{retryAfter: header, status: func(string, *message) int {
				if tried = append(tried, time.Now()); len(tried) > 1 {
					return http.StatusNoContent
				}
				return http.StatusTooManyRequests
			}}
			require.Empty(t, run(l, h, nil, 15*time.Minute))
			require.Len(t, tried, 3)
			require.InDelta(t, max(want, minBackoff).Seconds(), tried[1].Sub(tried[0]).Seconds(), 1, "the pause is that of the target, for all its messages")
		})
	}
}

// The first doubt of an action is notified at once, and those of the next minute in one message with their number and a link.
func TestManyDoubtsAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h, began := newFakeLedger(), new(hooks), time.Now()
		l.target("up", wire.NotifyRules{Link: "https://flightd.example.com"})
		go func() {
			for i := range 60 {
				time.Sleep(2 * time.Second / 60)
				l.happen(t, "pay", fmt.Sprint(i), flight.EventInDoubt, flight.StateInDoubt)
			}
			l.happen(t, "mail", "1", flight.EventInDoubt, flight.StateInDoubt)
		}()
		require.Empty(t, run(l, h, nil, 5*time.Minute))
		require.Equal(t, 3, len(h.messages))
		first, mail, rest := h.messages[0], h.messages[1], h.messages[2]
		require.Equal(t, "default/mail/1", mail.Data.Key)
		require.Less(t, h.times[0].Sub(began), time.Second)
		require.Less(t, h.times[1].Sub(began), 3*time.Second)
		require.Less(t, h.times[2].Sub(began), 65*time.Second)
		require.Equal(t, 60, max(1, first.Data.Count)+rest.Data.Count)
		require.Equal(t, "https://flightd.example.com/console/#/doubts?text=default%2Fpay%2F", rest.Data.Link)
		require.Equal(t, "flightd doubt ls -n default --action pay", rest.Data.Command)
		require.Regexp(t, fmt.Sprintf("^New doubts in default/pay since .*Z: %d\\.\n", rest.Data.Count), rest.Text)
	})
}

// 1,000 approvals of one namespace do not delay the doubt of another one.
func TestNamespacesAreServedInTurn(t *testing.T) {
	for _, actions := range []int{1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			l, happened, delay := newFakeLedger(), time.Time{}, time.Duration(0)
			l.target("up", wire.NotifyRules{})
			for i := range 1000 {
				l.happen(t, fmt.Sprint("refund", i%actions), fmt.Sprint(i), flight.EventSubmitted, flight.StateAwaitingApproval)
			}
			h := &hooks{status: func(_ string, m *message) int {
				time.Sleep(53 * time.Millisecond)
				if m.Data.Namespace == "shop" {
					delay = time.Since(happened)
				}
				return http.StatusNoContent
			}}
			go func() {
				time.Sleep(300 * time.Millisecond)
				happened = time.Now()
				l.happen(t, "shop/pay", "1", flight.EventInDoubt, flight.StateInDoubt)
			}()
			require.Empty(t, run(l, h, nil, 5*time.Minute))
			require.Positive(t, delay)
			require.Less(t, delay, time.Second)
			approvals := 0
			for _, m := range h.messages {
				if m.Type == wire.NotifyApproval {
					approvals += max(1, m.Data.Count)
				}
			}
			require.Equal(t, 1000, approvals)
			require.Less(t, len(h.messages), 20)
			t.Logf("%d actions: the doubt was delivered after %v; %d messages", actions, delay, len(h.messages))
		})
	}
}

// For all answers of the target, and all times at which the node dies, each doubt is finally counted in a message, and the stored
// position stays a valid document.
func TestEachDoubtIsCounted(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	for round := range int64(5) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), uint64(round)))
			l, h, want := newFakeLedger(), new(hooks), map[string]int{}
			l.target("up", wire.NotifyRules{})
			poison, down := fmt.Sprint("a", rng.IntN(30)), false
			h.status = func(_ string, m *message) int {
				if down || m.Data.Action == poison && rng.IntN(10) > 0 || rng.IntN(5) == 0 {
					return [...]int{0, 404, 500}[rng.IntN(3)]
				}
				return http.StatusNoContent
			}
			n := 0
			for range 12 {
				l.lost, down = rng.IntN(4) == 0, rng.IntN(3) == 0
				events := rand.New(rand.NewPCG(rng.Uint64(), 0))
				var happening sync.WaitGroup
				happening.Go(func() {
					rng := events
					for range rng.IntN(100) {
						namespace := [...]string{"default", "shop", "bank"}[rng.IntN(3)]
						n++
						l.happen(t, namespace+"/a"+fmt.Sprint(rng.IntN(30)), fmt.Sprint(n)+strings.Repeat("%25", rng.IntN(80)), flight.EventInDoubt, flight.StateInDoubt)
						want[namespace]++
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
					}
				})
				run(l, h, nil, time.Duration(1+rng.IntN(120))*time.Second)
				happening.Wait()
			}
			l.lost, down, poison = false, false, ""
			require.Empty(t, run(l, h, nil, time.Hour))
			got := map[string]int{}
			ids := map[string]bool{}
			for i, m := range h.messages {
				if id := h.got[2*i+1]; !ids[id] { // a receiver takes each id once
					ids[id] = true
					got[m.Data.Namespace] += max(1, m.Data.Count)
				}
			}
			for namespace := range want {
				require.GreaterOrEqual(t, got[namespace]+got[""], want[namespace], "%s of %v", namespace, want)
			}
			for _, doc := range l.Documents(flight.KindNotified) {
				require.Less(t, len(doc.Body), flight.MaxDocument)
				require.NotContains(t, string(doc.Body), "pending", "all were taken")
			}
			require.Less(t, l.largest, flight.MaxDocument)
		})
	}
}

// A message that is sent again is made again: meanwhile an approval may be decided, an input redacted, or the target changed.
func TestRepeatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h, inputs := newFakeLedger(), new(hooks), []string{}
		l.target("up", wire.NotifyRules{})
		paid := l.happen(t, "pay", "1", flight.EventOverlap, flight.StateSucceeded).FlightID()
		l.inputs[paid] = `{"card":"4111"}`
		l.happen(t, "pay", "2", flight.EventSubmitted, flight.StateAwaitingApproval)
		h.status = func(_ string, m *message) int {
			inputs = append(inputs, m.Type+" "+string(m.Data.Input))
			switch len(inputs) {
			case 1:
				delete(l.inputs, paid)
			case 2:
				for _, f := range l.flights {
					if f.State == flight.StateAwaitingApproval {
						l.flights[f.ID] = &flight.Flight{ID: f.ID, Key: f.Key, Generation: 1, State: flight.StateReady}
					}
				}
			case 3:
				return http.StatusNoContent
			}
			return http.StatusBadGateway
		}
		require.Empty(t, run(l, h, nil, time.Minute), "the approval was decided")
		l.happen(t, "pay", "3", flight.EventInDoubt, flight.StateInDoubt)
		require.Contains(t, run(l, h, nil, 5*time.Second), "up")
		l.target("up", wire.NotifyRules{Events: []string{wire.NotifyOverlap}})
		n := len(inputs)
		require.Empty(t, run(l, h, nil, time.Minute), "the message that failed is not wanted any more")
		require.Len(t, inputs, n)
		require.Equal(t, []string{wire.NotifyOverlap + ` {"card":"4111"}`, wire.NotifyApproval + " ", wire.NotifyOverlap + " ", wire.NotifyInDoubt + " "}, inputs[:4])
		got, _ := h.taken()
		require.Equal(t, []string{"up flight.overlap default/pay/1"}, got)
	})
}

// A queue that is too old, and a quarantined report, are notified once, also by another leader, and again when they happen again.
func TestStatesAreNotifiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := newFakeLedger(), new(hooks)
		l.target("up", wire.NotifyRules{})
		began, oldest := time.Now(), l.Now()
		state := func(c *Config) {
			c.Quarantined = func() []string { return []string{"x.report.damaged"} }
			c.Queues = slices.Values([]Queue{{"default", "pay", oldest}, {"default", "fresh", 0}})
		}
		run(l, h, state, 14*time.Minute)
		got, _ := h.taken()
		require.Equal(t, []string{"up report.quarantined a/x.report.damaged"}, got)
		run(l, h, state, 3*time.Minute)
		run(l, h, func(c *Config) { state(c); c.Node = "b"; c.Quarantined = func() []string { return nil } }, time.Minute)
		oldest = l.Now().Add(-10 * time.Minute) // a little younger: it is the same state
		run(l, h, state, 6*time.Minute)
		got, _ = h.taken()
		require.Equal(t, []string{"up queue.old " + timeText(flight.Time(began.UnixMilli()))}, got[1:])
		oldest = 0
		run(l, h, state, time.Minute)
		oldest = l.Now()
		run(l, h, state, 16*time.Minute)
		got, ids := h.taken()
		require.Len(t, got, 3)
		require.NotEqual(t, ids[1], ids[2])
	})
}

// The document with the position stays within the bound of a document, however long the names are and however many queues are too old.
func TestPositionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h, n := newFakeLedger(), &hooks{status: func(string, *message) int { return http.StatusBadGateway }}, 0
		l.target("up", wire.NotifyRules{})
		var queues []Queue
		for i := range 300 {
			name := fmt.Sprint(strings.Repeat("q", 250), i)
			queues = append(queues, Queue{name, name, l.Now().Add(-time.Hour)})
			for _, kind := range []flight.EventKind{flight.EventInDoubt, flight.EventOverlap} {
				l.happen(t, fmt.Sprintf("n%d/%s", i, name[:1+i%2*(i%250)]), strings.Repeat("%25", i%2*(i%80))+"1", kind, flight.StateInDoubt)
				n++
			}
		}
		run(l, h, func(c *Config) { c.Queues = func(yield func(Queue) bool) { slices.Values(queues)(yield) } }, time.Minute)
		require.Less(t, l.largest, flight.MaxDocument)
		h.status, queues = nil, nil
		require.Empty(t, run(l, h, nil, time.Hour))
		for _, m := range h.messages {
			if m.Type != wire.NotifyQueueOld {
				n -= max(1, m.Data.Count)
			}
		}
		require.Zero(t, n)
	})
}

// The position of a target that is no more is deleted.
func TestDeletedTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := newFakeLedger(), new(hooks)
		l.target("up", wire.NotifyRules{})
		l.happen(t, "pay", "1", flight.EventInDoubt, flight.StateInDoubt)
		run(l, h, nil, 5*time.Second)
		require.Len(t, l.Documents(flight.KindNotified), 1)
		delete(l.documents, flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindNotify, Name: "up"})
		run(l, h, nil, 5*time.Second)
		require.Empty(t, l.documents)
	})
}

func TestInputIsRedactedAndCut(t *testing.T) {
	masks := []wire.NotifyMask{{Action: "pay", Pointers: []string{"/card/number", "/items/*/name", "/a~1b", "/none/x"}}, {Action: "*", Pointers: []string{"/mail"}}}
	for _, c := range []struct {
		action, input, want string
		truncated, withheld bool
	}{
		{action: "pay", input: `{"card":{"number":"4111","cvc":1},"items":[{"name":"x","n":12345678901234567890}],"a/b":[1],"mail":"m"}`,
			want: `{"a/b":"[redacted]","card":{"cvc":1,"number":"[redacted]"},"items":[{"n":12345678901234567890,"name":"[redacted]"}],"mail":"[redacted]"}`},
		{action: "pay", input: `{"card":{"number":"4111"},"card":{"number":"4222"}}`, want: `{"card":{"number":"[redacted]"}}`},
		{action: "other", input: `{"card":{"number":1},"mail":{"to":"m"}}`, want: `{"card":{"number":1},"mail":"[redacted]"}`},
		{action: "pay", input: `card=4111`, withheld: true},
		{action: "pay", input: `{"a":1}`, truncated: true, withheld: true},
		{action: "pay", input: "{\"a\":\"\xff\"}", withheld: true},
		{action: "pay", input: strings.Repeat("[", 200) + strings.Repeat("]", 200), withheld: true},
	} {
		d := data{Action: c.action}
		d.setInput([]byte(c.input), c.truncated, masks)
		require.Equal(t, c.want, string(d.Input))
		require.Equal(t, c.withheld, d.InputWithheld)
	}
	d := data{Action: "pay"}
	d.setInput([]byte(`{"a":1}`), false, []wire.NotifyMask{{Action: "pay", Pointers: []string{""}}})
	require.Equal(t, `"[redacted]"`, string(d.Input))
	d = data{}
	d.setInput([]byte(`"`+strings.Repeat("é", maxInput)+`"`), false, nil)
	require.True(t, d.InputCut)
	require.True(t, json.Valid(d.Input))
	require.Less(t, len(d.Input), maxInput+16)
	d = data{}
	d.setInput([]byte("plain \xff text"), false, nil)
	require.Equal(t, "\"plain \uFFFD text\"", string(d.Input))
	d = data{}
	d.setInput([]byte("{\"a\":\"\xff\"}"), false, nil)
	require.True(t, utf8.Valid(d.Input), "receivers reject the whole message")
}

// A key cannot mention everybody in a chat, and its command can be pasted into a shell.
func TestTextIsHarmless(t *testing.T) {
	m := message{Data: data{Command: "flightd x " + quote("default/a/<!channel>'; rm -rf")}}
	m.setText("default/a/<!channel> @all is in doubt.")
	require.NotContains(t, m.Text, "<")
	require.NotContains(t, m.Text, "@all")
	m.setText("default/a/[x](/y) (attempt 1 of [x](http://y)\n`flightd doubt resolve z`) www.y.com")
	for _, live := range []string{"](", "://", "www.", "\n`flightd doubt"} {
		require.NotContains(t, m.Text, live)
	}
	require.Equal(t, `'a'\''b'`, quote("a'b"))
	require.Equal(t, "default/exec/pay-1#step", quote("default/exec/pay-1#step"))
}

// The text names the attempt that the event is about, also if another one has followed.
func TestTextNamesTheAttemptOfTheEvent(t *testing.T) {
	l := newFakeLedger()
	key := l.happen(t, "pay", "1", flight.EventInDoubt, flight.StateRunning)
	f := &follower{Notifier: New(Config{Ledger: l}), target: new(wire.NotifyTarget)}
	l.flights[key.FlightID()].Attempts = []flight.Attempt{{Number: 1, Owner: "first", ClosedAt: 1}, {Number: 2, Owner: "second"}}
	l.events[0].Attempt = 1
	m, err := f.flightMessage(&l.events[0], l.flights[key.FlightID()])
	require.NoError(t, err)
	require.Contains(t, m.Text, "attempt 1 of first")
	require.NotContains(t, m.Text, "second")
	require.Len(t, m.Data.Attempts, 2)
}

// An undo that its provider refused has surely not happened: the text of its doubt must not leave that open.
func TestTextOfARefusedUndo(t *testing.T) {
	l := newFakeLedger()
	key := l.happen(t, "trip", "1", flight.EventInDoubt, flight.StateInDoubt)
	undo, err := key.Step("seat.undo")
	require.NoError(t, err)
	l.events[0].Key = undo
	f := &follower{Notifier: New(Config{Ledger: l}), target: new(wire.NotifyTarget)}
	m, err := f.flightMessage(&l.events[0], l.flights[key.FlightID()])
	require.NoError(t, err)
	require.Contains(t, m.Text, "its effect did not happen")
	l.flights[key.FlightID()].TaintingAttempts = 1
	m, err = f.flightMessage(&l.events[0], l.flights[key.FlightID()])
	require.NoError(t, err)
	require.Contains(t, m.Text, "may or may not have happened")
	require.Equal(t, wire.NotifySagaInDoubt, m.Type)
}

// A target that takes a test message does not fail any more.
func TestTestEndsAFailure(t *testing.T) {
	l := newFakeLedger()
	l.target("up", wire.NotifyRules{})
	h := &hooks{status: func(string, *message) int { return http.StatusGone }}
	n := New(Config{Ledger: l, Wall: time.Now, Logger: slog.New(slog.DiscardHandler)})
	n.client.Transport = h
	n.fail("up", errors.New("it is down"))
	for _, failing := range []int{1, 0} {
		_, err := n.Test(t.Context(), l.Documents(flight.KindNotify)[0])
		require.NoError(t, err)
		require.Len(t, n.Failing(), failing)
		h.status = nil
	}
}

// Addresses of networks around the node are reached only if the operator allows them.
func TestAddresses(t *testing.T) {
	for text, public := range map[string]bool{"8.8.8.8": true, "2606:4700::1": true, "127.0.0.1": false, "10.1.2.3": false, "169.254.169.254": false, "192.168.0.1": false, "100.64.0.1": false, "0.0.0.0": false,
		"224.0.0.1": false, "255.255.255.255": false, "::1": false, "fe80::1": false, "fd00::1": false, "64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001:db8::1": false, "::": false} {
		require.Equal(t, public, isPublic(netip.MustParseAddr(text)), text)
	}
	n := New(Config{Wall: time.Now})
	_, err := n.post(t.Context(), &wire.NotifyTarget{URL: "http://[::ffff:127.0.0.1]:9/secret", Secret: wire.NewNotifySecret()}, "x", nil)
	require.ErrorContains(t, err, "not a public address")
	require.NotContains(t, err.Error(), "secret")
}
