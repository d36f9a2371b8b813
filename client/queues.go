package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Answers about the jobs of pools.
type (
	Queue    = wire.Queue
	LaneJobs = wire.Lane
	Block    = wire.Block
)

// Queues returns the actions of the client's namespace, or of all namespaces, that have jobs or workers, or are paused.
func (re *requester) Queues(ctx context.Context, allNamespaces bool) (all []Queue, err error) {
	for cursor := ""; ; {
		path := withQuery("/v1/queues", "limit", "500", "cursor", cursor)
		page, err := decode[wire.QueueList](re.ask(ctx, request{method: http.MethodGet, path: path, allNamespaces: allNamespaces}))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Queues...)
		if cursor = page.Next; cursor == "" {
			return all, nil
		}
	}
}

// PauseQueue pauses an action: after it returns, no job of the action is handed out until ResumeQueue. Jobs that workers have go on;
// Queue.Running is their number. It may be repeated; the newest reason counts. If the action was paused or resumed after the newest
// answer that the client has, PauseQueue and ResumeQueue return an *Error with the code precondition_failed.
func (re *requester) PauseQueue(ctx context.Context, action, reason string) (*Queue, error) {
	return re.changeQueue(ctx, action, "pause", reason)
}

// ResumeQueue ends a pause. It is no error if there is none.
func (re *requester) ResumeQueue(ctx context.Context, action, reason string) (*Queue, error) {
	return re.changeQueue(ctx, action, "resume", reason)
}

func (re *requester) changeQueue(ctx context.Context, action, verb, reason string) (*Queue, error) {
	body := wire.ReasonRequest{Reason: reason}
	r := adminRequest(http.MethodPost, "/v1/queues/"+url.PathEscape(action)+"/"+verb, &body)
	return decode[Queue](re.ask(ctx, r))
}

// LaneJobs returns the first jobs of a lane of the client's namespace.
func (re *requester) LaneJobs(ctx context.Context, action, lane string) (*LaneJobs, error) {
	return decode[LaneJobs](re.ask(ctx, request{method: http.MethodGet, path: "/v1/lanes?" + url.Values{"action": {action}, "lane": {lane}}.Encode()}))
}

// LaneOf returns the first jobs of the lane in which a job stands, or stood.
func (re *requester) LaneOf(ctx context.Context, key flight.Key) (*LaneJobs, error) {
	return decode[LaneJobs](re.ask(ctx, request{method: http.MethodGet, path: "/v1/lanes?" + url.Values{"key": {key.String()}}.Encode(), key: key}))
}
