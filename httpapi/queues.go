package httpapi

import (
	"cmp"
	"context"
	"iter"
	"math"
	"net/http"
	"net/url"
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
		route{pattern: "GET /v1/queues", serve: qr.list, access: with(auth.Read), query: true},
		route{pattern: "POST /v1/queues/{action}/pause", serve: qr.pause, access: with(auth.Operate)},
		route{pattern: "POST /v1/queues/{action}/resume", serve: qr.resume, access: with(auth.Operate)},
		route{pattern: "GET /v1/lanes", serve: qr.lane, access: with(auth.Read), query: true},
	}
}

// namespace returns the namespace of a request about queues.
func (qr *queueRoutes) namespace(r *http.Request) (string, *wire.Invalid) {
	if qr.queues == nil || qr.documents == nil {
		return "", &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no jobs"}}
	}
	return namespace(r)
}

// list serves GET /v1/queues: a page of the actions that have jobs or workers, or are paused.
func (qr *queueRoutes) list(w http.ResponseWriter, r *http.Request) error {
	ns, bad := qr.namespace(r)
	if bad == nil {
		ns, bad = wire.ParseListNamespace(ns, "")
	}
	if bad != nil {
		return bad
	}
	params, bad := queryParameters(r)
	if bad != nil {
		return bad
	}
	after, limit, bad := parseQueuesQuery(ns, params)
	if bad != nil {
		return bad
	}
	page, more := qr.page(ns, after, limit)
	out := wire.QueueList{Queues: make([]wire.Queue, len(page))}
	for i := range page {
		var err error
		if out.Queues[i], err = qr.show(r, &page[i]); err != nil {
			return err
		}
	}
	if more {
		out.Next = page[len(page)-1].ID()
		params.Set("cursor", out.Next)
		setNextPage(w, r, params)
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

// parseQueuesQuery parses the parameters of a list of the queues of a namespace, or of all if it is empty.
func parseQueuesQuery(ns string, params url.Values) (after string, limit int, bad *wire.Invalid) {
	limit = defaultPage
	for name, values := range params {
		if len(values) > 1 {
			return "", 0, duplicateParameter(name)
		}
		switch name {
		case "limit":
			if limit, bad = parsePageLimit(values[0]); bad != nil {
				return "", 0, bad
			}
		case "cursor":
			if after = values[0]; !strings.Contains(after, "/") || ns != "" && !strings.HasPrefix(after, ns+"/") {
				return "", 0, wire.BadParameter(name, "must be the next of an earlier page of the same namespace, unchanged")
			}
		default:
			return "", 0, wire.BadParameter(name, "unknown parameter; allowed: limit, cursor")
		}
	}
	return after, limit, nil
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

// pause serves POST /v1/queues/{action}/pause. After its answer no job of the action is handed out. Another pause of the same action
// replaces the reason. If the process dies before the answer, the action may be paused.
func (qr *queueRoutes) pause(w http.ResponseWriter, r *http.Request) error {
	return qr.change(w, r, true, func(id flight.DocumentID, version flight.Version, d *operatorRequest) flight.Command {
		return &flight.PutDocument{ID: id, Expect: version, Body: []byte(pausedBody), Actor: d.actor, Reason: d.reason}
	})
}

// resume serves POST /v1/queues/{action}/resume. It wakes the claims that wait.
func (qr *queueRoutes) resume(w http.ResponseWriter, r *http.Request) error {
	return qr.change(w, r, false, func(id flight.DocumentID, version flight.Version, d *operatorRequest) flight.Command {
		return &flight.DeleteDocument{ID: id, Expect: version, Actor: d.actor, Reason: d.reason}
	})
}

// change proposes a change of the document of an action, whatever its version is, and answers when the change has its effect.
func (qr *queueRoutes) change(w http.ResponseWriter, r *http.Request, pauses bool, command func(flight.DocumentID, flight.Version, *operatorRequest) flight.Command) error {
	ns, bad := qr.namespace(r)
	action := r.PathValue("action")
	if bad == nil {
		_, bad = wire.Key(ns, action, "x")
	}
	var req wire.ReasonRequest
	if bad == nil {
		req, bad = receive(qr.store.readAdminBody, w, r, wire.MaxSmallBody, wire.Decode[wire.ReasonRequest])
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		return bad
	}
	id := flight.QueueID(ns, action)
	now := qr.documents.Document(id)
	for range 3 {
		// A repeat changes nothing, and gets the first answer even if it is older than another change.
		repeat := now == nil && !pauses || now != nil && pauses && now.Changed.Actor == d.actor && now.Changed.Reason == d.reason
		if bad := qr.store.checkNotOutdated(r, id, now); bad != nil && !repeat {
			return bad
		}
		version := cmp.Or(now, &flight.Document{}).Version
		reply, err := qr.store.operator.Propose(r.Context(), command(id, version, &d))
		switch {
		case err != nil:
			return err
		case reply.Decision == flight.DecisionExhausted:
			return &effect.QuotaExceeded{Limit: "the ledger stores the maximum number of documents", RetryAfter: operatorRetryAfter}
		case reply.Decision == flight.DecisionAccepted:
			if err := qr.queues.PauseChanged(r.Context(), ns, action); err != nil {
				return err
			}
			shown := wire.Queue{Namespace: ns, Action: action}
			for q := range qr.queues.Queues(ns, "") {
				if q.Action == action {
					shown.Running = q.Running
					break
				}
			}
			if reply.Document != nil {
				shown.Paused = pausedBy(reply.Document)
			}
			return writeJSON(w, r, http.StatusOK, &shown)
		}
		now = reply.Document
	}
	return documentChanged()
}

// maxLaneJobs is how many jobs of a lane are shown.
const maxLaneJobs = 100

// lane serves GET /v1/lanes: the jobs of a lane, named by its action and its name, or by the key of one of its jobs.
func (qr *queueRoutes) lane(w http.ResponseWriter, r *http.Request) error {
	ns, bad := qr.namespace(r)
	if bad != nil {
		return bad
	}
	params, bad := queryParameters(r)
	if bad != nil {
		return bad
	}
	for name, values := range params {
		switch {
		case name != "key" && name != "action" && name != "lane":
			return wire.BadParameter(name, "unknown parameter; allowed: key, or action and lane")
		case len(values) > 1:
			return duplicateParameter(name)
		case values[0] == "":
			return wire.BadParameter(name, "empty")
		}
	}
	out := wire.Lane{Namespace: ns, Action: params.Get("action"), Lane: params.Get("lane"), Jobs: []wire.LaneJob{}}
	switch named := params.Get("key"); {
	case named != "" && len(params) > 1:
		return wire.BadParameter("key", "not allowed together with other parameters: a key selects the lane of its job")
	case named != "":
		key, bad := wire.ParseKey(named, wire.BadParameter("key", ""))
		if bad == nil {
			bad = allowKey(r, key, wire.FieldError{Parameter: "key"})
		}
		if bad != nil {
			return bad
		}
		f, err := qr.findFlight(r, key.FlightID(), key)
		if err != nil {
			return about(key, err)
		}
		if f.Place == nil || f.Place.Queue.Lane == "" {
			return about(key, &wire.Invalid{Code: wire.NotFound, Hint: "a job gets its lane when it is submitted", FieldError: wire.FieldError{Detail: "the flight stands in no lane"}})
		}
		out.Namespace, out.Action, out.Lane = key.Namespace(), key.Name(), f.Place.Queue.Lane
	case out.Action == "":
		return wire.BadParameter("action", "missing; name the action and the lane, or the key of a job")
	case out.Lane == "":
		return wire.BadParameter("lane", "missing; name the lane, too")
	default:
		if _, bad := wire.Key(ns, out.Action, "x"); bad != nil {
			return bad
		}
	}
	ids, open, total := qr.queues.Lane(out.Namespace, out.Action, out.Lane, maxLaneJobs)
	out.Total = total
	blocked, runs := "", len(ids) == 0
	for i, id := range ids {
		f, err := qr.flightOf(r, id, flight.Key{})
		switch {
		case err != nil:
			return err
		case f == nil:
			continue // freed meanwhile
		}
		if i < open {
			blocks := qr.blocksOf(r, f)
			if runs = runs || len(blocks) == 0; blocked == "" && len(blocks) > 0 {
				blocked = f.Key.String() + ": " + blocks[0].Detail
			}
		}
		out.Jobs = append(out.Jobs, wire.LaneJob{Key: f.Key.String(), FlightID: f.ID.String(), State: f.State.String(), MayOpen: i < open})
	}
	if !runs {
		out.BlockedBy = blocked
	}
	return writeJSON(w, r, http.StatusOK, &out)
}
