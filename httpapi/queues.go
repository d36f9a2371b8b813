package httpapi

import (
	"cmp"
	"context"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// Queues show how the jobs stand.
type Queues interface {
	// Queues iterates over the actions of a namespace that have jobs or workers, of all namespaces if it is empty, behind the one with
	// the ID after, in the order of their namespaces and names.
	Queues(namespace, after string) iter.Seq[remote.Queue]
	// Lane returns the first jobs of a lane that are not over, in their order, how many of them may open, and how many there are.
	Lane(namespace, action, lane string, limit int) (jobs []flight.ID, open, total int)
	// LaneBlocker returns the first job of the lane of a flight, if the lane does not let the flight open.
	LaneBlocker(id flight.ID) (first flight.ID, blocked bool)
	// Workers returns how many workers have asked for jobs of an action lately.
	Workers(namespace, action string) int
	// LooksUp reports whether one of them looks up unknown outcomes.
	LooksUp(namespace, action string) bool
	// PauseChanged is called when the ledger has stored that an action is paused, or is not any more. It returns when no claim that
	// looked before is opening a job.
	PauseChanged(ctx context.Context, namespace, action string) error
}

// queueRoutes serve those who operate pools.
type queueRoutes struct {
	*flightWriter
	store *documentStore
}

func (qr *queueRoutes) routes() []declaration {
	return []declaration{
		Endpoint[queuesQuery, wire.QueueList]{Pattern: "GET /v1/queues", Access: with(auth.Read), Serve: qr.list},
		Endpoint[pauseOf, wire.Queue]{Pattern: "POST /v1/queues/{action}/pause",
			Access: with(auth.Operate), Body: wire.MaxSmallBody, Serve: qr.pause},
		Endpoint[pauseOf, wire.Queue]{Pattern: "POST /v1/queues/{action}/resume",
			Access: with(auth.Operate), Body: wire.MaxSmallBody, Serve: qr.resume},
		Endpoint[laneQuery, wire.Lane]{Pattern: "GET /v1/lanes", Access: with(auth.Read), Serve: qr.lane},
	}
}

// namespace returns the namespace of a request about queues.
func (qr *queueRoutes) namespace(r *http.Request) (string, *wire.Invalid) {
	if qr.queues == nil || qr.documents == nil {
		return "", &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no jobs"}}
	}
	return namespace(r)
}

// queuesQuery selects a page of queues.
type queuesQuery struct {
	Limit  limitParameter `query:"limit"`
	Cursor *string        `query:"cursor"`
}

// list returns a page of the actions that have jobs or workers, or are paused.
func (qr *queueRoutes) list(q *Request, in *queuesQuery) (*wire.QueueList, error) {
	ns, bad := qr.namespace(q.Request)
	if bad == nil {
		ns, bad = wire.ParseListNamespace(ns, "")
	}
	after := ""
	if in.Cursor != nil {
		after = *in.Cursor
	}
	if bad == nil && in.Cursor != nil && (!strings.Contains(after, "/") || ns != "" && !strings.HasPrefix(after, ns+"/")) {
		bad = wire.BadParameter("cursor", "must be the next of an earlier page of the same namespace, unchanged")
	}
	if bad != nil {
		return nil, bad
	}
	page, more := qr.page(ns, after, in.Limit.or(defaultPage))
	out := &wire.QueueList{Queues: make([]wire.Queue, len(page))}
	for i := range page {
		var err error
		if out.Queues[i], err = qr.show(q.Request, &page[i]); err != nil {
			return nil, err
		}
	}
	if more {
		out.Next = page[len(page)-1].ID()
		q.linkNext(out.Next)
	}
	return out, nil
}

// page returns the first queues of a namespace, or of all, behind the one with the ID after. A paused action is one, too.
func (qr *queueRoutes) page(ns, after string, limit int) (page []remote.Queue, more bool) {
	named := func(namespace, action string) (q remote.Queue) {
		q.Namespace, q.Action = namespace, action
		return q
	}
	for q := range qr.queues.Queues(ns, after) {
		if page = append(page, q); len(page) > limit {
			break
		}
	}
	lastNamespace, lastAction, _ := strings.Cut(after, "/")
	last := named(lastNamespace, lastAction)
	for _, doc := range qr.documents.Documents(flight.KindQueue) {
		q := named(doc.ID.Namespace, doc.ID.Name)
		if at, listed := slices.BinarySearchFunc(page, q, remote.CompareQueues); !listed && (ns == "" || q.Namespace == ns) && remote.CompareQueues(q, last) > 0 {
			page = slices.Insert(page, at, q)
		}
	}
	return page[:min(limit, len(page))], len(page) > limit
}

// show returns the answer about a queue.
func (qr *queueRoutes) show(r *http.Request, q *remote.Queue) (wire.Queue, error) {
	shown := wire.Queue{Namespace: q.Namespace, Action: q.Action, Ready: q.Ready, Running: q.Running, Scheduled: q.Scheduled(), Held: q.Held,
		Waiting: q.States[flight.StateWaiting], InDoubt: q.States[flight.StateInDoubt], Workers: q.Workers, EndedPerSecond: math.Round(100*q.EndedPerSecond) / 100,
		Failing: q.Failing}
	if q.Oldest > 0 {
		shown.OldestReadyMS = max(0, int64(qr.ledger.Now()-q.Oldest))
	}
	if doc := qr.documents.Document(flight.QueueID(q.Namespace, q.Action)); doc != nil {
		shown.Paused = pausedBy(doc)
	}
	for _, l := range q.Stuck {
		f, err := qr.flightOf(r, l.Blocker, flight.Key{})
		if err != nil {
			return shown, err
		}
		if f != nil {
			shown.StuckLanes = append(shown.StuckLanes, wire.StuckLane{Lane: l.Lane, Blocker: f.Key.String(), Behind: l.Behind})
		}
	}
	for _, id := range q.Failed {
		f, err := qr.flightOf(r, id, flight.Key{})
		if err != nil {
			return shown, err
		}
		if f == nil {
			continue
		}
		if last := flight.FailingAttempt(f); last != nil { // else it has changed meanwhile
			cause := cmp.Or(last.Error, "given back by "+cmp.Or(last.Owner, "an unnamed worker"))
			shown.FailingJobs = append(shown.FailingJobs, wire.FailingJob{Key: f.Key.String(), Cause: cause})
		}
	}
	return shown, nil
}

// pausedBy says who has paused an action, with the newest reason, and since when it is paused.
func pausedBy(doc *flight.Document) *wire.Attribution {
	return &wire.Attribution{Actor: doc.Changed.Actor, Reason: doc.Changed.Reason, At: wire.Time{Time: doc.CreatedAt.AsTime()}}
}

// pausedBody is the body of the document that pauses an action.
const pausedBody = `{"paused":true}`

// pauseOf asks for a pause of an action, or for its end.
type pauseOf struct {
	Action string `json:"-" path:"action"`
	wire.ReasonRequest
}

// pause pauses an action. After its answer no job of the action is handed out. Another pause of the same action
// replaces the reason. If the process dies before the answer, the action may be paused.
func (qr *queueRoutes) pause(q *Request, in *pauseOf) (*wire.Queue, error) {
	return qr.change(q, in, true, func(id flight.DocumentID, version flight.Version, who, why string) flight.Command {
		return &flight.PutDocument{ID: id, Expect: version, Body: []byte(pausedBody), Actor: who, Reason: why}
	})
}

// resume ends the pause of an action. It wakes the claims that wait.
func (qr *queueRoutes) resume(q *Request, in *pauseOf) (*wire.Queue, error) {
	return qr.change(q, in, false, func(id flight.DocumentID, version flight.Version, who, why string) flight.Command {
		return &flight.DeleteDocument{ID: id, Expect: version, Actor: who, Reason: why}
	})
}

// change proposes a change of the document of an action, whatever its version is, and answers when the change has its effect.
func (qr *queueRoutes) change(q *Request, in *pauseOf, pauses bool,
	command func(id flight.DocumentID, version flight.Version, who, why string) flight.Command) (*wire.Queue, error) {
	ns, bad := qr.namespace(q.Request)
	if bad == nil {
		_, bad = wire.Key(ns, in.Action, "x")
	}
	if bad != nil {
		return nil, bad
	}
	who, why, bad := attribution(q.Request, in.Actor, in.Reason)
	if bad != nil {
		return nil, bad
	}
	id := flight.QueueID(ns, in.Action)
	now := qr.documents.Document(id)
	for range 3 {
		// A repeat changes nothing, and gets the first answer even if it is older than another change.
		repeat := now == nil && !pauses || now != nil && pauses && now.Changed.Actor == who && now.Changed.Reason == why
		if bad := qr.store.checkNotOutdated(q.Request, id, now); bad != nil && !repeat {
			return nil, bad
		}
		version := cmp.Or(now, &flight.Document{}).Version
		reply, err := qr.store.operator.Propose(q.Context(), command(id, version, who, why))
		switch {
		case err != nil:
			return nil, err
		case reply.Decision == flight.DecisionExhausted:
			return nil, &effect.QuotaExceeded{Limit: "the ledger stores the maximum number of documents", RetryAfter: operatorRetryAfter}
		case reply.Decision == flight.DecisionAccepted:
			return qr.changed(q, ns, in.Action, reply.Document)
		}
		now = reply.Document
	}
	return nil, documentChanged()
}

// changed returns an action after the change of its document to doc; nil: it was deleted. It returns when the change has its effect.
func (qr *queueRoutes) changed(q *Request, ns, action string, doc *flight.Document) (*wire.Queue, error) {
	if err := qr.queues.PauseChanged(q.Context(), ns, action); err != nil {
		return nil, err
	}
	shown := &wire.Queue{Namespace: ns, Action: action}
	for queue := range qr.queues.Queues(ns, "") {
		if queue.Action == action {
			shown.Running = queue.Running
			break
		}
	}
	if doc != nil {
		shown.Paused = pausedBy(doc)
	}
	return shown, nil
}

// maxLaneJobs is how many jobs of a lane are shown.
const maxLaneJobs = 100

// laneQuery names a lane by its action and its name, or by the key of one of its jobs.
type laneQuery struct {
	Key    string `query:"key"`
	Action string `query:"action"`
	Lane   string `query:"lane"`
}

// lane returns the jobs of a lane.
func (qr *queueRoutes) lane(q *Request, in *laneQuery) (*wire.Lane, error) {
	out, err := qr.namedLane(q, in)
	if err != nil {
		return nil, err
	}
	ids, open, total := qr.queues.Lane(out.Namespace, out.Action, out.Lane, maxLaneJobs)
	out.Total = total
	blocked, runs := "", len(ids) == 0
	for i, id := range ids {
		f, err := qr.flightOf(q.Request, id, flight.Key{})
		switch {
		case err != nil:
			return nil, err
		case f == nil:
			continue // freed meanwhile
		}
		if i < open {
			blocks := qr.blocksOf(q.Request, f)
			if runs = runs || len(blocks) == 0; blocked == "" && len(blocks) > 0 {
				blocked = f.Key.String() + ": " + blocks[0].Detail
			}
		}
		out.Jobs = append(out.Jobs, wire.LaneJob{Key: f.Key.String(), FlightID: f.ID.String(), State: f.State.String(), MayOpen: i < open})
	}
	if !runs {
		out.BlockedBy = blocked
	}
	return out, nil
}

// namedLane returns the lane that a request names, without its jobs.
func (qr *queueRoutes) namedLane(q *Request, in *laneQuery) (*wire.Lane, error) {
	ns, bad := qr.namespace(q.Request)
	if bad != nil {
		return nil, bad
	}
	out := &wire.Lane{Namespace: ns, Action: in.Action, Lane: in.Lane, Jobs: []wire.LaneJob{}}
	switch {
	case in.Key != "" && (in.Action != "" || in.Lane != ""):
		return nil, wire.BadParameter("key", "not allowed together with other parameters: a key selects the lane of its job")
	case in.Key != "":
		key, bad := wire.ParseKey(in.Key, wire.BadParameter("key", ""))
		if bad == nil {
			bad = allowKey(q.Request, key, wire.FieldError{Parameter: "key"})
		}
		if bad != nil {
			return nil, bad
		}
		q.key = key
		f, err := qr.findFlight(q.Request, key.FlightID(), key)
		if err != nil {
			return nil, err
		}
		if f.Place == nil || f.Place.Queue.Lane == "" {
			return nil, &wire.Invalid{Code: wire.NotFound, Hint: "a job gets its lane when it is submitted", FieldError: wire.FieldError{Detail: "the flight stands in no lane"}}
		}
		out.Namespace, out.Action, out.Lane = key.Namespace(), key.Name(), f.Place.Queue.Lane
	case out.Action == "":
		return nil, wire.BadParameter("action", "missing; name the action and the lane, or the key of a job")
	case out.Lane == "":
		return nil, wire.BadParameter("lane", "missing; name the lane, too")
	default:
		if _, bad := wire.Key(ns, out.Action, "x"); bad != nil {
			return nil, bad
		}
	}
	return out, nil
}
