package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/strictjson"
)

const (
	pageEvents = 256
	// commitEvery bounds how often the position of a target is stored, and so how much is sent again after a crash.
	commitEvery = time.Second
	// commitEntries is after how many entries of the log a position without news is stored: far fewer than the log keeps.
	commitEntries = 1024
	// statesEvery is how often queues and quarantined reports are looked at.
	statesEvery = 5 * time.Second
	// gather is how long a reader at the end of the log lets entries gather.
	gather = 50 * time.Millisecond
	// maxStates bounds the states that a position remembers.
	maxStates = 100

	minBackoff, maxBackoff = time.Second, time.Minute
	// rejections is how often a target rejects a message by its content until it is skipped, so that the next ones arrive.
	rejections = 5
)

// progress is the body of the document with the position of a target.
type progress struct {
	At     string  `json:"at"`
	States []state `json:"states,omitempty"`
}

// state is something that lasts, and of which a target is notified once: a queue that is too old, or a quarantined report.
type state struct {
	Of   string `json:"of"` // type and subject
	ID   string `json:"id"` // of the message; stored before the first one is sent
	Sent bool   `json:"sent,omitempty"`
}

// DecodeTarget reads the document of a target.
func DecodeTarget(doc *flight.Document) (*wire.NotifyTarget, error) {
	t := new(wire.NotifyTarget)
	if err := json.Unmarshal(doc.Body, t); err != nil || t.Key() == nil {
		return nil, fmt.Errorf("the document %s cannot be read", doc.ID)
	}
	return t, nil
}

// follower notifies one target. Its goroutine owns it.
type follower struct {
	*Notifier
	name      string
	target    *wire.NotifyTarget
	at        flight.Version // the target has taken all messages up to here
	stored    flight.Version // at, as the ledger has it
	states    []state
	dirty     bool // messages were taken, or states changed, since the last commit
	committed time.Time
}

// follow notifies a target until ctx ends.
func (n *Notifier) follow(ctx context.Context, name string, t *wire.NotifyTarget) {
	f := &follower{Notifier: n, name: name, target: t}
	f.succeed(name) // a failure of the target before it was changed may concern a message that it does not want any more
	f.at, _ = flight.ParseVersion(t.Since)
	if doc := n.cfg.Ledger.Document(notifiedID(name)); doc != nil {
		var p progress
		if err := json.Unmarshal(doc.Body, &p); err == nil {
			f.states = p.States
			if at, err := flight.ParseVersion(p.At); err == nil && at.After(f.at) {
				f.at = at
			}
		}
	}
	f.stored = f.at
	for looked := (time.Time{}); ctx.Err() == nil; {
		if time.Since(looked) >= statesEvery {
			f.notifyStates(ctx)
			looked = time.Now()
		}
		more, err := f.notifyPage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			n.cfg.Logger.Warn("notifications cannot be read from the ledger; it is retried", "target", name, "error", err)
			clock.Sleep(ctx, time.Second)
		}
		if more || err != nil {
			continue
		}
		if f.dirty {
			clock.Sleep(ctx, commitEvery-time.Since(f.committed))
			f.commit(ctx)
			continue
		}
		waiting, end := context.WithTimeout(ctx, statesEvery)
		_ = n.cfg.Ledger.Await(waiting, f.at) // its error is that of ctx, or of the next read
		end()
		clock.Sleep(ctx, gather)
	}
}

// notifyPage sends the messages of the next events of the feed. If the log does not reach back to the position, notifyPage sends what
// waits for a person now, under the ids of the events that the log has lost.
func (f *follower) notifyPage(ctx context.Context) (more bool, err error) {
	page, err := f.cfg.Ledger.Read(f.at, pageEvents)
	if errors.As(err, new(*flight.CompactedError)) || errors.As(err, new(*flight.FuturePositionError)) {
		end, err := f.cfg.Ledger.End()
		if err == nil {
			f.cfg.Logger.Warn("the log does not reach back to the last notification; overlaps since then were not notified", "target", f.name, "position", f.at.String())
			err = f.notifyOpen(ctx)
		}
		if err != nil {
			return false, err
		}
		f.at, f.dirty = end, true
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for i := range page.Events {
		e := &page.Events[i]
		if err := f.notifyEvent(ctx, e); err != nil {
			return false, err
		}
		if i+1 < len(page.Events) && page.Events[i+1].Version == e.Version {
			continue // a position lies between commands
		}
		f.at = e.Version
		if f.dirty && time.Since(f.committed) >= commitEvery {
			f.commit(ctx)
		}
	}
	f.at = page.Next
	if f.at.Index >= f.stored.Index+commitEntries {
		f.dirty = true
	}
	return page.More, nil
}

// notifyOpen sends a message of each flight that is in doubt or awaits an approval.
func (f *follower) notifyOpen(ctx context.Context) error {
	q := flight.Query{States: []flight.State{flight.StateInDoubt, flight.StateAwaitingApproval}}
	for {
		page, err := f.cfg.Ledger.List(q)
		if err != nil {
			return err
		}
		for _, fl := range page.Flights {
			history, err := f.cfg.Ledger.History(fl.ID)
			if err != nil {
				return err
			}
			for _, h := range slices.Backward(history) { // the event that has brought the flight there
				if h.Kind == flight.EventInDoubt || fl.State == flight.StateAwaitingApproval && (h.Kind == flight.EventSubmitted || h.Kind == flight.EventRetried) {
					if err := f.notifyEvent(ctx, &flight.FeedEvent{Key: fl.Key, HistoryEvent: h}); err != nil {
						return err
					}
					break
				}
			}
		}
		if q.After = page.Next; !page.More {
			return nil
		}
	}
}

// notifyEvent sends the message of an event, if it is one that the target has selected.
func (f *follower) notifyEvent(ctx context.Context, e *flight.FeedEvent) error {
	switch e.Kind {
	case flight.EventInDoubt, flight.EventOverlap, flight.EventSubmitted, flight.EventRetried:
	default:
		return nil
	}
	if !f.selects("", e.Key.Namespace()) {
		return nil
	}
	return f.deliver(ctx, func() (string, *message, error) {
		fl, err := f.cfg.Ledger.Flight(e.Key.FlightID())
		if err != nil || fl == nil {
			return "", nil, err
		}
		m, err := f.flightMessage(e, fl)
		if err != nil || m == nil || !f.selects(m.Type, e.Key.Namespace()) {
			return "", nil, err
		}
		return f.id(f.name, f.target.Since, m.Type, fmt.Sprint(e.Version, int64(e.At), e.Key)), m, nil // a restored ledger uses versions again
	})
}

// selects reports whether the target wants events of a type and a namespace; the type "" is any.
func (f *follower) selects(event, namespace string) bool {
	return (event == "" || len(f.target.Events) == 0 || slices.Contains(f.target.Events, event)) &&
		(len(f.target.Namespaces) == 0 || slices.Contains(f.target.Namespaces, namespace))
}

// notifyStates sends a message of each queue that has become too old and of each report that was quarantined. The id of a message is
// stored before the message is sent, so that another leader sends it again under the same id.
func (f *follower) notifyStates(ctx context.Context) {
	now, messages, lasts := f.cfg.Ledger.Now(), map[string]*message{}, map[string]bool{}
	begin := func(event, subject, since string, m *message) {
		of := event + " " + subject
		messages[of] = m
		if !slices.ContainsFunc(f.states, func(s state) bool { return s.Of == of }) && len(f.states) < maxStates {
			f.states, f.dirty = append(f.states, state{Of: of, ID: f.id(f.name, f.target.Since, event, subject+" "+since)}), true
		}
	}
	limit := time.Duration(f.target.QueueAgeMS) * time.Millisecond
	if limit <= 0 {
		limit = wire.DefaultQueueAge * time.Millisecond
	}
	for _, q := range f.cfg.Queues() {
		if q.Oldest == 0 || !f.selects(wire.NotifyQueueOld, q.Namespace) {
			continue
		}
		age, subject := now.AsTime().Sub(q.Oldest.AsTime()), q.Namespace+"/"+q.Action
		lasts[wire.NotifyQueueOld+" "+subject] = age > limit/2 // a queue about as old as the limit is notified once
		if age > limit {
			begin(wire.NotifyQueueOld, subject, q.Oldest.AsTime().String(), f.queueMessage(q, now))
		}
	}
	if f.selects(wire.NotifyQuarantined, "") { // the namespace of a file that cannot be read is unknown
		for _, file := range f.cfg.Quarantined() {
			subject := f.cfg.Node + "/" + file
			lasts[wire.NotifyQuarantined+" "+subject] = true
			begin(wire.NotifyQuarantined, subject, "", f.reportMessage(subject, now))
		}
	}
	f.states = slices.DeleteFunc(f.states, func(s state) bool {
		elsewhere := strings.HasPrefix(s.Of, wire.NotifyQuarantined) && !strings.HasPrefix(s.Of, wire.NotifyQuarantined+" "+f.cfg.Node+"/")
		over := !lasts[s.Of] && !elsewhere
		f.dirty = f.dirty || over
		return over
	})
	if f.dirty && !f.commit(ctx) {
		return
	}
	for i := range f.states {
		s := &f.states[i]
		if m := messages[s.Of]; !s.Sent && m != nil && f.deliver(ctx, func() (string, *message, error) { return s.ID, m, nil }) == nil {
			s.Sent = true
		}
	}
}

// deliver posts a message until the target has taken or rejected it, or render returns no message any more. Errors: those of ctx and render.
//
// render is called before each try: while a target is away, an approval may be decided, and an input redacted. If the process dies
// between the answer of the target and the next commit, the message is sent again under the same id.
func (f *follower) deliver(ctx context.Context, render func() (id string, m *message, err error)) error {
	for backoff, rejected := minBackoff, 0; ; backoff = min(2*backoff, maxBackoff) {
		id, m, err := render()
		if err != nil {
			return err
		}
		if m == nil {
			if backoff > minBackoff { // the target has failed to take it
				f.succeed(f.name)
			}
			return nil
		}
		status, err := f.post(ctx, f.target, id, m.encode())
		if err == nil {
			f.cfg.Sent(m.Type, "delivered")
			f.succeed(f.name)
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.fail(f.name, err)
		switch status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
			rejected++
		}
		if rejected >= rejections {
			f.cfg.Sent(m.Type, "rejected")
			f.cfg.Logger.Error("a target rejects a notification; it is skipped", "target", f.name, "event", m.Type, "key", m.Data.Key, "id", id, "error", err)
			break
		}
		f.cfg.Sent(m.Type, "failed")
		if !clock.Sleep(ctx, clock.Jitter(backoff)) {
			return ctx.Err()
		}
	}
	f.dirty = true
	return nil
}

// commit stores the position in the ledger. After an error the position stays dirty.
func (f *follower) commit(ctx context.Context) bool {
	f.committed = time.Now()
	put := &flight.PutDocument{ID: notifiedID(f.name), Body: strictjson.Append(nil, &progress{At: f.at.String(), States: f.states}), Actor: "flightd"}
	if doc := f.cfg.Ledger.Document(put.ID); doc != nil {
		put.Expect = doc.Version
	}
	at := f.at
	reply, err := f.cfg.Ledger.Propose(ctx, put)
	if err != nil || reply.Decision != flight.DecisionAccepted {
		if ctx.Err() == nil {
			f.cfg.Logger.Info("the position of a target of notifications was not stored; it is retried", "target", f.name, "error", err)
		}
		return false
	}
	f.stored, f.dirty = at, false
	return true
}

func notifiedID(name string) flight.DocumentID {
	return flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindNotified, Name: name}
}
