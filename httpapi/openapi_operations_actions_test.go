package httpapi_test

import (
	"net/http"

	"github.com/flightd/flightd/httpapi/wire"
)

func actionOperations() []Operation {
	changeCodes := codes(bodyCodes, wire.NotFound, wire.PreconditionFailed, wire.QuotaExceeded)
	return []Operation{{
		Pattern: "GET /v1/actions", ID: "listActions", Tag: tagJobs, Summary: "List the actions that have a document, with their policies",
		Parameters: []string{wire.HeaderNamespace}, Answers: okAnswer("the actions of the namespace", wire.ActionList{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "GET /v1/actions/{name}", ID: "getAction", Tag: tagJobs, Summary: "Get the policy of an action",
		Parameters: []string{wire.HeaderNamespace},
		Answers:    []Answer{{Status: http.StatusOK, About: "the document", Headers: []string{"ETag"}, Content: jsonContent(wire.Action{})}},
		Problems:   codes(readCodes, wire.NotFound),
	}, {
		Pattern: "PUT /v1/actions/{name}", ID: "putAction", Tag: tagJobs, Summary: "Set the policy of an action",
		About: "Jobs whose submission declares no policy, no retries or no lane get those of the document. A change concerns new jobs only. The request replaces the whole document; a field that is absent has its default.\n\n" +
			"If-Match is optional here: with it, the document is changed only if it still has that version.",
		Parameters: []string{wire.HeaderNamespace, "If-Match", wire.HeaderActor}, Request: wire.ActionRequest{},
		Example: `{"recovery":"resend","provider_window_ms":86400000,"attempt_timeout_ms":30000,"retry":{"attempts":8,"first_ms":1000,"max_ms":60000},"lane":{"by":"/customer","limit":1},"reason":"as the bank says","actor":"maria"}`,
		Answers: okAnswer("what became of the document", wire.ActionAnswer{}), Problems: changeCodes,
	}, {
		Pattern: "DELETE /v1/actions/{name}", ID: "deleteAction", Tag: tagJobs, Summary: "Delete the document of an action",
		About:      "Jobs that were submitted keep their policies. New ones have those of their submissions, else hold.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: `{"reason":"nobody works it any more","actor":"maria"}`,
		Answers: okAnswer("the action has no document", struct{}{}), Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed),
	}, {
		Pattern: "POST /v1/actions/{name}/declare", ID: "declareAction", Tag: tagJobs, Summary: "Say which policy a worker brings",
		About: "A worker sends this before its first claim. A document that is there counts: the answer names the fields of yours that differ, and the worker must not start if one of them has `refuses`. Fields that you do not send are not compared. " +
			"If there is no document, it is created from yours, provided that the token has the verb `define` or `operate`; else the answer is `undeclared`. `reason` is optional here.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.ActionRequest{},
		Example: `{"recovery":"resend","provider_window_ms":86400000,"retry":{"attempts":8}}`,
		Answers: okAnswer("the document that counts, and how yours differs", wire.ActionAnswer{}), Problems: changeCodes,
	}}
}
