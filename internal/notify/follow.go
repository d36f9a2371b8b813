package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
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
	// maxStates bounds the states that a position remembers, in bytes.
	maxStates = flight.MaxDocument / 4

	minBackoff, maxBackoff = time.Second, time.Minute
	maxPause               = 10 * time.Minute // upper bound for a Retry-After
	// rejections is the number of failed tries after which a message is set aside, if the target has taken other messages since the first
	// try.
	rejections = 5
)

// progress is the body of the document with the position of a target. The target has taken every event up to the position, unless the event
// is in Pending.
type progress struct {
	At      string     `json:"at"`
	States  []state    `json:"states,omitempty"`
	Pending []*pending `json:"pending,omitempty"`
}

// state is a lasting condition for which a target is notified once: a queue that is too old, or a quarantined report.
type state struct {
	Of string `json:"of"` // type and subject
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
	at        flight.Version // every event up to here was taken or is pending
	stored    flight.Version // at, as the ledger has it
	states    []state
	queue     queue
	pause     time.Time // nothing is sent earlier
	taken     int       // number of messages that the target has taken
	dirty     bool      // the queue or the states changed since the last commit
	committed time.Time // time of the last commit, also of a failed one
}

// follow notifies a target until ctx ends.
func (n *Notifier) follow(ctx context.Context, name string, t *wire.NotifyTarget) {
	f := &follower{Notifier: n, name: name, target: t}
	f.succeed(name) // a failure of the target before it was changed may concern a message that it does not want any more
	f.at, _ = flight.ParseVersion(t.Since)
	if doc := n.cfg.Ledger.Document(notifiedID(name)); doc != nil {
		var p progress
		if err := json.Unmarshal(doc.Body, &p); err == nil {
			f.states, f.queue.pending = p.States, slices.DeleteFunc(p.Pending, func(p *pending) bool { return p.Namespace != rest && !f.selects(p.Type, p.Namespace) })
			if at, err := flight.ParseVersion(p.At); err == nil && at.After(f.at) {
				f.at = at
			}
		}
	}
	f.stored = f.at
	for looked := (time.Time{}); ctx.Err() == nil; {
		if time.Since(looked) >= statesEvery {
			f.gatherStates(ctx)
			looked = time.Now()
		}
		more, err := f.gatherPage()
		due, wait := f.queue.next(time.Now(), f.pause)
		if due != nil && err == nil {
			err = f.send(ctx, due)
		}
		if ctx.Err() != nil {
			return
		}
		if f.dirty && time.Since(f.committed) >= commitEvery {
			f.commit(ctx)
		}
		if err != nil {
			n.cfg.Logger.Warn("notifications cannot be read from the ledger; it is retried", "target", name, "error", err)
			clock.Sleep(ctx, time.Second)
		}
		if more || due != nil || err != nil {
			continue
		}
		if f.dirty {
			wait = min(wait, commitEvery-time.Since(f.committed))
		}
		waiting, end := context.WithTimeout(ctx, min(wait, statesEvery))
		_ = n.cfg.Ledger.Await(waiting, f.at) // its error is that of ctx, or of the next read
		end()
		clock.Sleep(ctx, gather)
	}
}

// gatherPage adds the messages for the next events of the feed to the queue. If the log does not reach back to the position,
// gatherPage instead adds the flights that wait for a person now, under the ids of the lost events.
func (f *follower) gatherPage() (more bool, err error) {
	page, err := f.cfg.Ledger.Read(f.at, pageEvents)
	if errors.As(err, new(*flight.CompactedError)) || errors.As(err, new(*flight.FuturePositionError)) {
		end, err := f.cfg.Ledger.End()
		if err == nil {
			f.cfg.Logger.Warn("the log does not reach back to the last notification; overlaps since then were not notified", "target", f.name, "position", f.at.String())
			err = f.gatherOpen()
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
		if err := f.gatherEvent(e); err != nil {
			return false, err
		}
		if i+1 == len(page.Events) || page.Events[i+1].Version != e.Version { // a position lies between commands
			f.at = e.Version
		}
	}
	f.at = page.Next
	if f.at.Index >= f.stored.Index+commitEntries {
		f.dirty = true
	}
	return page.More, nil
}

// gatherOpen adds a message for each flight that is in doubt or awaits an approval.
func (f *follower) gatherOpen() error {
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
					if err := f.gatherEvent(&flight.FeedEvent{Key: fl.Key, HistoryEvent: h}); err != nil {
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

// gatherEvent adds the message for an event to the queue if the target selects the event.
func (f *follower) gatherEvent(e *flight.FeedEvent) error {
	p := &pending{Count: 1, Namespace: e.Key.Namespace(), Action: e.Key.Name(), Since: e.At, Key: e.Key, Kind: e.Kind, Generation: e.Generation, Attempt: e.Attempt}
	switch {
	case e.Kind == flight.EventInDoubt && e.Key.IsStep():
		p.Type = wire.NotifySagaInDoubt
	case e.Kind == flight.EventInDoubt:
		p.Type = wire.NotifyInDoubt
	case e.Kind == flight.EventOverlap:
		p.Type = wire.NotifyOverlap
	case e.Kind == flight.EventSubmitted || e.Kind == flight.EventRetried:
		p.Type = wire.NotifyApproval
	default:
		return nil
	}
	if !f.selects(p.Type, p.Namespace) {
		return nil
	}
	if p.Type == wire.NotifyApproval {
		fl, err := f.cfg.Ledger.Flight(p.Key.FlightID())
		if err != nil || fl == nil || !awaits(fl, p.Generation) {
			return err
		}
	}
	p.ID = f.id(f.name, f.target.Since, p.Type, fmt.Sprint(e.Version, int64(e.At), e.Key)) // a restored ledger uses versions again
	f.queue.add(p)
	f.dirty = true
	return nil
}

// selects reports whether the target wants events of a type and a namespace; the type "" is any.
func (f *follower) selects(event, namespace string) bool {
	return (event == "" || len(f.target.Events) == 0 || slices.Contains(f.target.Events, event)) &&
		(len(f.target.Namespaces) == 0 || slices.Contains(f.target.Namespaces, namespace))
}

// gatherStates adds a message for each queue that has become too old and for each newly quarantined report. The messages are stored
// at once, so that another leader sends them under the same ids.
func (f *follower) gatherStates(ctx context.Context) {
	now, lasts := f.cfg.Ledger.Now(), map[string]bool{}
	begin := func(subject, since string, p *pending) {
		of := p.Type + " " + subject
		if !slices.Contains(f.states, state{of}) && len(strictjson.Append(nil, f.states)) < maxStates {
			p.Count, p.ID = 1, f.id(f.name, f.target.Since, p.Type, subject+" "+since)
			f.queue.add(p)
			f.states, f.dirty = append(f.states, state{of}), true
		}
	}
	limit := time.Duration(f.target.QueueAgeMS) * time.Millisecond
	if limit <= 0 {
		limit = wire.DefaultQueueAge * time.Millisecond
	}
	for q := range f.cfg.Queues {
		if q.Oldest == 0 || !f.selects(wire.NotifyQueueOld, q.Namespace) {
			continue
		}
		age, subject := now.AsTime().Sub(q.Oldest.AsTime()), q.Namespace+"/"+q.Action
		lasts[wire.NotifyQueueOld+" "+subject] = age > limit/2 // a queue about as old as the limit is notified once
		if age > limit {
			begin(subject, q.Oldest.AsTime().String(), &pending{Type: wire.NotifyQueueOld, Namespace: q.Namespace, Action: q.Action, Since: q.Oldest})
		}
	}
	if f.selects(wire.NotifyQuarantined, "") { // the namespace of a file that cannot be read is unknown
		for _, file := range f.cfg.Quarantined() {
			subject := f.cfg.Node + "/" + file
			lasts[wire.NotifyQuarantined+" "+subject] = true
			begin(subject, "", &pending{Type: wire.NotifyQuarantined, Since: now, Report: subject})
		}
	}
	f.states = slices.DeleteFunc(f.states, func(s state) bool {
		elsewhere := strings.HasPrefix(s.Of, wire.NotifyQuarantined) && !strings.HasPrefix(s.Of, wire.NotifyQuarantined+" "+f.cfg.Node+"/")
		over := !lasts[s.Of] && !elsewhere
		f.dirty = f.dirty || over
		return over
	})
	f.queue.pending = slices.DeleteFunc(f.queue.pending, func(p *pending) bool { // the queue has recovered before the target took the message
		return p.Type == wire.NotifyQueueOld && p.Count == 1 && p.Action != rest && !lasts[p.Type+" "+p.Namespace+"/"+p.Action]
	})
	if f.dirty {
		f.commit(ctx)
	}
}

// send posts a message once. It returns an error only if ctx ends or the ledger cannot be read.
//
// The message is made anew for each try, because an approval may be decided or an input redacted while a target is away. If the process
// dies between the answer of the target and the next commit, the message is sent again, under the same id unless more was counted
// meanwhile.
func (f *follower) send(ctx context.Context, p *pending) error {
	m, err := f.render(p)
	if err != nil {
		return err
	}
	if m == nil {
		if p.tries > 0 { // an earlier try has failed
			f.succeed(f.name)
		}
		f.queue.remove(p)
		f.dirty = true
		return nil
	}
	status, err := f.post(ctx, f.target, p.id(), m.encode())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now()
	if err == nil {
		f.cfg.Sent(p.Type, "delivered")
		f.succeed(f.name)
		f.queue.take(p, now.Add(quiet))
		f.taken++
		f.dirty = true
		return nil
	}
	f.fail(f.name, err)
	f.pause = now.Add(max(clock.Jitter(minBackoff), min(effect.RequestedPause(err), maxPause)))
	if p.tries == 0 {
		p.takenBefore = f.taken
	}
	p.notBefore = now.Add(clock.Jitter(min(minBackoff<<min(p.tries, 6), maxBackoff)))
	p.tries++
	if p.tries < rejections || f.taken == p.takenBefore || p.Action == rest {
		f.cfg.Sent(p.Type, "failed")
		return nil
	}
	f.cfg.Sent(p.Type, "rejected")
	f.cfg.Logger.Error("a target takes other notifications and not this one; it is sent without its content", "target", f.name, "event", p.Type, "key", p.Key.String(), "id", p.id(), "status", status, "error", err)
	f.queue.setAside(p)
	f.dirty = true
	return nil
}

// commit stores the position in the ledger. After an error the position stays dirty.
func (f *follower) commit(ctx context.Context) {
	f.committed = time.Now()
	put := &flight.PutDocument{ID: notifiedID(f.name), Body: strictjson.Append(nil, &progress{At: f.at.String(), States: f.states, Pending: f.queue.waiting()}), Actor: "flightd"}
	if doc := f.cfg.Ledger.Document(put.ID); doc != nil {
		put.Expect = doc.Version
	}
	at := f.at
	reply, err := f.cfg.Ledger.Propose(ctx, put)
	if err != nil || reply.Decision != flight.DecisionAccepted {
		if ctx.Err() == nil {
			f.cfg.Logger.Info("the position of a target of notifications was not stored; it is retried", "target", f.name, "error", err)
		}
		return
	}
	f.stored, f.dirty = at, false
}

func notifiedID(name string) flight.DocumentID {
	return flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindNotified, Name: name}
}
