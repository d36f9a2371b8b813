package httpapi_test

import (
	"github.com/flightd/flightd/httpapi/wire"
)

func notifyOperations() []Operation {
	return []Operation{{
		Pattern: "GET /v1/notify", ID: "listNotify", Tag: tagAdmin, Summary: "List the targets of notifications",
		About:   "The token needs all namespaces. Secrets are never shown, nor what follows the host in a URL.",
		Answers: okAnswer("the targets, by name", wire.NotifyList{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "GET /v1/notify/{name}", ID: "getNotify", Tag: tagAdmin, Summary: "Get a target of notifications",
		Answers: okAnswer("the target, without its secret", wire.Notify{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "PUT /v1/notify/{name}", ID: "putNotify", Tag: tagAdmin, Summary: "Create or replace a target of notifications",
		About: "A new target gets what happens from then on. The messages are described in docs/notify.md. The request replaces everything but the secret, which stays if the request has none. " +
			"A new target without one gets a random secret, which the answer has. If that answer is lost, send the request again with a secret.",
		Parameters: []string{wire.HeaderActor}, Request: wire.NotifyRequest{},
		Example: `{"url":"https://hooks.example.com/T0/B0","events":["flight.in_doubt","flight.overlap"],"redact":[{"action":"charge","pointers":["/card/number"]}],"reason":"the on-call channel","actor":"maria"}`,
		Answers: okAnswer("the target", wire.Notify{}), Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed, wire.QuotaExceeded),
	}, {
		Pattern: "DELETE /v1/notify/{name}", ID: "deleteNotify", Tag: tagAdmin, Summary: "Delete a target of notifications",
		Parameters: []string{wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: `{"reason":"the channel is closed","actor":"maria"}`,
		Answers: okAnswer("there is no such target", struct{}{}), Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed),
	}, {
		Pattern: "POST /v1/notify/{name}/test", ID: "testNotify", Tag: tagAdmin, Summary: "Post a test message to a target, once",
		About:   "The answer is 200 also if the target did not take the message: see `error`.",
		Request: struct{}{}, Example: `{}`,
		Answers: okAnswer("what became of the message", wire.NotifyTestAnswer{}), Problems: codes(bodyCodes, wire.NotFound),
	}}
}
