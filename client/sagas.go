package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// Requests and answers about sagas.
type (
	Saga         = wire.Saga
	SagaStep     = wire.SagaStep
	SagaVersions = wire.SagaVersions
	SagaPage     = wire.SagaPage

	UndoLateRequest = wire.UndoLateRequest
)

// SagaQuery filters ListSagas; zero values select everything.
type SagaQuery struct {
	Name          string
	State         string
	Limit         int
	Cursor        string // of an earlier page
	AllNamespaces bool
}

// DefineSaga stores a definition of a saga, which never changes: the same one again is accepted. Errors: *Error with the code
// idempotency_conflict for another content under the same version, or input_invalid.
func (re *requester) DefineSaga(ctx context.Context, name string, version int, definition []byte) error {
	_, err := re.ask(ctx, request{method: http.MethodPut, path: fmt.Sprintf("/v1/sagas/%s/versions/%d", url.PathEscape(name), version), body: definition, actor: true})
	return err
}

// SagaVersions returns the definitions of a saga.
func (re *requester) SagaVersions(ctx context.Context, name string) (*SagaVersions, error) {
	return decode[SagaVersions](re.ask(ctx, request{method: http.MethodGet, path: "/v1/sagas/" + url.PathEscape(name) + "/versions"}))
}

// SagaDefinition returns a definition of a saga, as JSON.
func (re *requester) SagaDefinition(ctx context.Context, name string, version int) ([]byte, error) {
	resp, err := re.ask(ctx, request{method: http.MethodGet, path: fmt.Sprintf("/v1/sagas/%s/versions/%d", url.PathEscape(name), version)})
	return resp.body, err
}

// DeleteSagaDefinition deletes a definition of a saga. Errors: *Error with the code precondition_failed while a saga of it is not over, or not_found.
func (re *requester) DeleteSagaDefinition(ctx context.Context, name string, version int, reason string) error {
	_, err := re.delete(ctx, fmt.Sprintf("/v1/sagas/%s/versions/%d", url.PathEscape(name), version), reason)
	return err
}

// StartSaga starts a saga, and does not wait for it. The saga is NAME, the newest version, or NAME@VERSION. The same id is the same run, for
// every caller and however often it is started. Errors: *Conflict for another input, *Expired, *Unavailable, *flight.InvalidError, *Error.
func (re *requester) StartSaga(ctx context.Context, saga, id string, input any) (*wire.StartSagaAnswer, error) {
	data, err := json.Marshal(input)
	if err != nil {
		return nil, &flight.InvalidError{Field: "input", Detail: err.Error()}
	}
	r := wire.StartSagaRequest{Saga: saga, ID: id, Input: data}
	if string(data) == "null" {
		r.Input = nil
	}
	key, _, _, bad := r.Parse(re.opts.namespace)
	if bad != nil {
		return nil, &flight.InvalidError{Field: bad.Pointer, Detail: bad.Detail}
	}
	return decode[wire.StartSagaAnswer](re.ask(ctx, request{method: http.MethodPost, path: "/v1/sagas:start", body: strictjson.Append(nil, &r), actor: true, key: key}))
}

// Saga returns a saga with its steps.
func (re *requester) Saga(ctx context.Context, id flight.ID) (*Saga, error) {
	return decode[Saga](re.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/saga")}))
}

// UndoLate undoes a step that has happened after its saga, which is over, had taken it for not done. It does not wait for that: LateUndo of the
// step shows it. The same request again finds it. Errors: *Error with the code precondition_failed if there is nothing to undo.
func (re *requester) UndoLate(ctx context.Context, id flight.ID, r UndoLateRequest) (*Saga, error) {
	return decode[Saga](re.ask(ctx, request{method: http.MethodPost, path: flightPath(id, "/undo-late"), body: strictjson.Append(nil, &r), actor: true}))
}

// ListSagas returns a page of sagas, newest first, without their steps. A page may be short; Next is "" on the last one.
func (re *requester) ListSagas(ctx context.Context, q SagaQuery) (*SagaPage, error) {
	path := withQuery("/v1/sagas", "name", q.Name, "state", q.State, "limit", strconv.Itoa(q.Limit), "cursor", q.Cursor)
	return decode[SagaPage](re.ask(ctx, request{method: http.MethodGet, path: path, allNamespaces: q.AllNamespaces}))
}

// WaitSaga waits until a saga is over, or waits for a person (SagaInDoubt).
func (re *requester) WaitSaga(ctx context.Context, id flight.ID) (*Saga, error) {
	const wait = wire.MaxWaitMS * time.Millisecond / 2
	for {
		resp, err := re.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/saga"), prefer: "wait=" + strconv.Itoa(int(wait/time.Second)), timeout: wait + defaultTryTimeout})
		s, err := decode[Saga](resp, err)
		if err != nil || s.Over() || s.State == wire.SagaInDoubt {
			return s, err
		}
		if !pauseUnlessWaited(ctx, resp, wait) {
			return s, context.Cause(ctx)
		}
	}
}
