package notify

import (
	"fmt"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

const (
	// quiet is the time between two messages about an action. Events of that time are counted in the second message.
	quiet = time.Minute
	// maxActions is the maximum number of actions of a namespace with a pending message of one type. The other actions share a message.
	maxActions = 8
	// maxQueue bounds the bytes of the pending messages, which are stored in one document.
	maxQueue = flight.MaxDocument * 5 / 8
	// rest is the action of a message about several actions, and the namespace of a message about several namespaces.
	rest = flight.AllNamespaces
)

// pending is a message that a target has not taken yet. It is about one event, or counts the events of one type and action since the
// last message about them. Events leave a count only when the target has taken the message.
type pending struct {
	Type      string `json:"type"`
	ID        string `json:"id"` // webhook-id, if Count is 1; the other ids begin with it
	Count     int    `json:"count"`
	Rejected  int    `json:"rejected,omitzero"` // number of events whose messages were set aside; Count includes them
	Namespace string `json:"namespace,omitzero"`
	Action    string `json:"action,omitzero"`
	Report    string `json:"report,omitzero"` // node and file of a quarantined report

	// The fields of the first event. Since is the due time of the oldest job for an old queue.
	Since      flight.Time      `json:"since,omitzero"`
	Key        flight.Key       `json:"key,omitzero"`
	Kind       flight.EventKind `json:"kind,omitzero"`
	Generation uint32           `json:"generation,omitzero"`
	Attempt    uint32           `json:"attempt,omitzero"`

	notBefore   time.Time // earliest time of the next try, or of the next message about the action
	tries       int
	takenBefore int // value of follower.taken at the first try
}

// id returns the webhook-id. It depends on the count, so that a receiver that has seen a smaller count does not drop the message as a copy.
func (p *pending) id() string {
	if p.Count == 1 && p.Action != rest {
		return p.ID
	}
	return fmt.Sprintf("%s_%d", p.ID, p.Count)
}

// counted returns p as a count for several actions of a namespace, without key and input.
func (p *pending) counted(namespace string) *pending {
	return &pending{Type: p.Type, ID: p.ID, Count: p.Count, Rejected: p.Rejected, Namespace: namespace, Action: rest, Since: p.Since}
}

// size returns an upper bound for the length of p in JSON.
func (p *pending) size() int {
	const fields, escaped = 320, 6
	return fields + escaped*(len(p.Namespace)+len(p.Action)+len(p.Report)+len(p.Key.String()))
}

// queue holds the pending messages of a target. A message that was taken stays with count 0 until its quiet time ends.
type queue struct {
	pending []*pending
	turn    int
	turns   map[string]int // last turn by namespace
}

// add counts p in the pending message about its action, or makes p that message. If the bounds forbid it, p is counted with other actions
// of its namespace, or with other namespaces.
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

// fits reports whether the bounds allow p as a separate message.
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

// next returns the message to send now, or nil and the time until one is due. Namespaces take turns, and within a namespace messages with
// fewer tries come first.
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

// take resets the count of a message that the target has taken. The next message about the action is sent at notBefore or later.
func (q *queue) take(p *pending, notBefore time.Time) {
	p.Count, p.Rejected, p.tries, p.notBefore = 0, 0, 0, notBefore
}

func (q *queue) remove(p *pending) {
	q.pending = slices.DeleteFunc(q.pending, func(o *pending) bool { return o == p })
}

// setAside replaces p by a count without its key and input.
func (q *queue) setAside(p *pending) {
	q.remove(p)
	p.Rejected, p.Action = p.Count, rest
	q.add(p.counted(p.Namespace))
}

// waiting returns the messages that the target has not taken.
func (q *queue) waiting() []*pending {
	return slices.DeleteFunc(slices.Clone(q.pending), func(p *pending) bool { return p.Count == 0 })
}
