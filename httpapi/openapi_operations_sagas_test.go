package httpapi_test

import (
	"net/http"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

func sagaOperations() []Operation {
	definition := func(status int, about string) Answer {
		return Answer{Status: status, About: about, Content: jsonContent(struct{}{})}
	}
	saga := func(status int, about string, v any) Answer {
		return Answer{Status: status, About: about, Headers: flightAnswerHeaders, Optional: expiryHeaders, Content: jsonContent(v)}
	}
	limit := typedSchema("integer")
	from, to := int64(1), int64(httpapi.MaxPage)
	limit.Minimum, limit.Maximum, limit.Default = &from, &to, httpapi.DefaultPage
	return []Operation{{
		Pattern: "PUT /v1/sagas/{name}/versions/{version}", ID: "defineSaga", Tag: tagSagas, Summary: "Define a version of a saga",
		About: "The body is the definition: its fields are those of the YAML in the guide to sagas, with `steps` as a list. A definition never changes: the same one again is accepted, another one is a conflict. " +
			"A saga that runs stays with the version that it was started with. A definition with a finding is rejected; `flightd sagas lint` shows all findings.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: struct{}{},
		Example:  `{"saga":"trip","version":1,"steps":[{"name":"hotel","action":"hotel.book","undo":{"action":"hotel.cancel"}},{"name":"pay","action":"charge","needs":["hotel"],"pivot":true}]}`,
		Answers:  []Answer{definition(http.StatusCreated, "the stored definition"), definition(http.StatusOK, "it was stored before")},
		Problems: codes(bodyCodes, wire.NotFound, wire.Conflict, wire.QuotaExceeded, wire.PreconditionFailed),
	}, {
		Pattern: "GET /v1/sagas/{name}/versions/{version}", ID: "getSagaDefinition", Tag: tagSagas, Summary: "Get a definition",
		Parameters: []string{wire.HeaderNamespace}, Answers: []Answer{definition(http.StatusOK, "the definition")}, Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "DELETE /v1/sagas/{name}/versions/{version}", ID: "deleteSagaDefinition", Tag: tagSagas, Summary: "Delete a definition",
		About:      "A definition with a saga that is not over is kept: `running` of the versions counts them. Sagas that are over keep their receipts, but their steps are not shown any more, and `undo-late` of them is rejected.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: `{"reason":"nobody starts it any more"}`,
		Answers: []Answer{{Status: http.StatusOK, About: "deleted", Content: jsonContent(wire.Revoked{})}}, Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed),
	}, {
		Pattern: "GET /v1/sagas/{name}/versions", ID: "listSagaVersions", Tag: tagSagas, Summary: "List the versions of a saga",
		Parameters: []string{wire.HeaderNamespace}, Problems: codes(readCodes, wire.NotFound),
		Answers: []Answer{{Status: http.StatusOK, About: "the versions, the oldest first; none: nobody has defined it", Content: jsonContent(wire.SagaVersions{})}},
	}, {
		Pattern: "POST /v1/sagas:start", ID: "startSaga", Tag: tagSagas, Summary: "Start a saga",
		About: "The same id is the same run, for every caller and however often it is started: `duplicate` has the saga as it is now. To run it again, use another id. " +
			"A saga is a flight: read it with `Prefer: wait` to wait for its end, cancel it as a flight, and get its receipt.",
		Parameters: []string{wire.HeaderNamespace}, Request: wire.StartSagaRequest{},
		Example:  `{"saga":"trip","id":"b-42","input":{"cents":1999,"mail":"ann@example.com"}}`,
		Answers:  []Answer{saga(http.StatusCreated, "`queued`: the saga is new", wire.StartSagaAnswer{}), saga(http.StatusOK, "`duplicate`: it was started before", wire.StartSagaAnswer{})},
		Problems: codes(bodyCodes, wire.NotFound, wire.KeyRequired, wire.KeyInvalid, wire.Conflict, wire.Expired, wire.Reconciling, wire.QuotaExceeded, wire.RateLimited),
	}, {
		Pattern: "GET /v1/sagas", ID: "listSagas", Tag: tagSagas, Summary: "List sagas, newest first",
		About:      "A page can be short or empty without being the last one: there are more sagas if `next` is set. Steps and receipts are not listed.",
		Parameters: []string{wire.HeaderNamespace},
		Query: []Parameter{
			{Name: "state", Schema: typedSchema("string"), About: "only sagas in these states, separated by commas"},
			{Name: "name", Schema: typedSchema("string"), About: "only sagas with this name"},
			{Name: "limit", Schema: limit, About: "the largest number of sagas on the page"},
			{Name: "cursor", Schema: typedSchema("string"), About: "continue after an earlier page: its `next`, unchanged"},
		},
		Answers:  []Answer{{Status: http.StatusOK, About: "a page of sagas", Optional: []string{"Link"}, Content: jsonContent(wire.SagaPage{})}},
		Problems: codes(readCodes, wire.NotFound, wire.RateLimited),
	}, {
		Pattern: "GET /v1/flights/{id}/saga", ID: "getSaga", Tag: tagSagas, Summary: "Get a saga with its steps",
		About: "The steps are in the order of the definition, each with the flight of its step and of its undo. A step in doubt is resolved as any flight. " +
			"With `Prefer: wait=N` the request is answered as soon as the saga is over, or waits for a person.",
		Parameters: []string{wire.HeaderPrefer},
		Answers: []Answer{{Status: http.StatusOK, About: "the saga", Headers: flightAnswerHeaders, Optional: append([]string{wire.HeaderPreferenceApplied}, expiryHeaders...),
			Content: jsonContent(wire.Saga{})}},
		Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "POST /v1/flights/{id}/undo-late", ID: "undoLate", Tag: tagSagas, Summary: "Undo a step that has happened too late",
		About: "For a saga that is over and undone, and a step with `late`: its success came after the saga had taken it for not done. The undo is a job of its own, with the action of the step's undo " +
			"and a key that follows from the saga and the step: it exists once, and the saga does not change. Its input is that of the undo, with the external id of the late success; the ledger has no body of it.",
		Request: wire.UndoLateRequest{}, Parameters: []string{wire.HeaderActor}, Example: `{"step":"hotel","reason":"the hotel has booked after all"}`,
		Answers:  []Answer{saga(http.StatusCreated, "the job is new: `late_undo` of the step", wire.Saga{}), saga(http.StatusOK, "it was submitted before", wire.Saga{})},
		Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed, wire.Conflict, wire.Expired, wire.Reconciling),
	}}
}
