package notify

import (
	"fmt"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

const (
	// quiet is how long after a message about an action the next one waits, and counts what happens meanwhile.
	quiet = time.Minute
	// maxActions is the number of actions of a namespace that have messages of their own of one type within a minute. Other actions share one.
	maxActions = 8
	// maxQueue bounds the bytes of the pending messages, which are stored in one document.
	maxQueue = flight.MaxDocument * 5 / 8
	// rest is the action of a message about several actions, and the namespace of a message about several namespaces.
	rest = flight.AllNamespaces
)

// pending is a message that a target has not taken yet: about one event, or about the number of events of a type and an action since the
// last message about them. Nothing is removed from a count before the target has taken it.
type pending struct {
	Type      string `json:"type"`
	ID        string `json:"id"` // webhook-id of a message about the first event alone
	Count     int    `json:"count"`
	Rejected  int    `json:"rejected,omitzero"` // of Count: in messages that were set aside
	Namespace string `json:"namespace,omitzero"`
	Action    string `json:"action,omitzero"`
	Report    string `json:"report,omitzero"` // node and file of a quarantined report

	// The first event, and for a queue since when its oldest job is ready.
	Since      flight.Time      `json:"since,omitzero"`
	Key        flight.Key       `json:"key,omitzero"`
	Kind       flight.EventKind `json:"kind,omitzero"`
	Generation uint32           `json:"generation,omitzero"`
	Attempt    uint32           `json:"attempt,omitzero"`

	notBefore   time.Time // the next try, or the next message about the action
	tries       int
	takenBefore int // messages that the target had taken at the first try
}

// id returns the webhook-id. A message with another count has another one, so that a receiver does not take it for a copy.
func (p *pending) id() string {
	if p.Count == 1 && p.Action != rest {
		return p.ID
	}
	return fmt.Sprintf("%s_%d", p.ID, p.Count)
}

// counted returns the part of p that a message about several actions of a namespace counts; it has no key and no input.
func (p *pending) counted(namespace string) *pending {
	return &pending{Type: p.Type, ID: p.ID, Count: p.Count, Rejected: p.Rejected, Namespace: namespace, Action: rest, Since: p.Since}
}

// size is at least the length of p in JSON.
func (p *pending) size() int {
	const fields, escaped = 320, 6
	return fields + escaped*(len(p.Namespace)+len(p.Action)+len(p.Report)+len(p.Key.String()))
}

// queue has the pending messages of a target. One that was taken stays for a minute with the count 0.
type queue struct {
	pending []*pending
	turn    int
	turns   map[string]int // by namespace: when it had its last turn
}

// add adds p to the message about its action. If the action must not have one, p is counted with other actions, or other namespaces.
func (q *queue) add(p *pending) {
	for _, p := range [...]*pending{p, p.counted(p.Namespace), p.counted(rest)} {
		i := slices.IndexFunc(q.pending, func(o *pending) bool { return o.Type == p.Type && o.Namespace == p.Namespace && o.Action == p.Action })
		switch {
		case i >= 0 && q.pending[i].Count > 0:
			q.pending[i].Count += p.Count
			q.pending[i].Rejected += p.Rejected
		case p.Namespace != rest && !q.fits(p):
			continue
		case i >= 0:
			p.notBefore = q.pending[i].notBefore
			q.pending[i] = p
		default:
			q.pending = append(q.pending, p)
		}
		return
	}
}

// fits reports whether p may be a message of its own.
func (q *queue) fits(p *pending) bool {
	size, actions := p.size(), 0
	for _, o := range q.pending {
		size += o.size()
		if o.Type == p.Type && o.Namespace == p.Namespace && o.Action != p.Action && o.Action != rest {
			actions++
		}
	}
	return size <= maxQueue && (actions < maxActions || p.Action == rest)
}

// next returns the message that is sent next, or how long none is due. Namespaces take turns, and new messages come before repeated ones.
func (q *queue) next(now, pause time.Time) (due *pending, wait time.Duration) {
	wait = quiet
	q.pending = slices.DeleteFunc(q.pending, func(p *pending) bool { return p.Count == 0 && !p.notBefore.After(now) })
	for _, p := range q.pending {
		if p.Count == 0 {
			continue
		}
		left := max(p.notBefore.Sub(now), pause.Sub(now))
		switch {
		case left > 0:
			wait = min(wait, left)
		case due == nil || q.turns[p.Namespace] < q.turns[due.Namespace] || p.Namespace == due.Namespace && p.tries < due.tries:
			due = p
		}
	}
	if due != nil {
		if q.turns == nil {
			q.turns = make(map[string]int)
		}
		q.turn++
		q.turns[due.Namespace] = q.turn
	}
	return due, wait
}

// take ends the count of a message that the target has taken. The next one about the action is not sent before notBefore.
func (q *queue) take(p *pending, notBefore time.Time) {
	p.Count, p.Rejected, p.tries, p.notBefore = 0, 0, 0, notBefore
}

func (q *queue) remove(p *pending) {
	q.pending = slices.DeleteFunc(q.pending, func(o *pending) bool { return o == p })
}

// setAside counts p in a message without its content.
func (q *queue) setAside(p *pending) {
	q.remove(p)
	p.Rejected, p.Action = p.Count, rest
	q.add(p.counted(p.Namespace))
}

// waiting returns the messages that were not taken.
func (q *queue) waiting() []*pending {
	return slices.DeleteFunc(slices.Clone(q.pending), func(p *pending) bool { return p.Count == 0 })
}
