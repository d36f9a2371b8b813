package httpapi_test

import (
	"net/http"

	"github.com/flightd/flightd/httpapi/wire"
)

func jobOperations() []Operation {
	return []Operation{{
		Pattern: "POST /v1/flights:submit", ID: "submitJobs", Tag: tagJobs, Summary: "Submit a job, or many",
		About: "A worker of the action performs the effect; you do not wait for it. The same key is the same job, for every caller and however often it is submitted: `duplicate` has its flight, with the receipt if it has ended. " +
			"To wait for the receipt, read the flight with `Prefer: wait`.\n\n" +
			"With `Content-Type: application/x-ndjson`, each line is one job, at most 10,000. Each is answered by a line, in order, with its status or its problem; a line that is rejected changes nothing for the others. Send the same lines again after a lost answer.\n\n" +
			"Without `retry`, a job has 8 attempts, with pauses from 1 s to 1 min. The jobs of a `lane` run one at a time, or at most `lane_limit`, in the order of their submission.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.SubmitRequest{},
		Example: `{"action":"charge","id":"order-42","input":{"amount":1999,"currency":"EUR"},"recovery":"resend","provider_window_ms":86400000,"lane":"customer/7","retry":{"attempts":8}}`,
		Answers: []Answer{
			{Status: http.StatusCreated, About: "`queued`: the job is new", Headers: flightAnswerHeaders, Content: jsonContent(wire.SubmitAnswer{})},
			{Status: http.StatusOK, About: "`duplicate`: the key has a flight already; or, of many lines, what became of each", Optional: append(expiryHeaders, flightAnswerHeaders...),
				Content: append(jsonContent(wire.SubmitAnswer{}), Content{Type: wire.TypeNDJSON, Value: wire.SubmitLine{}})},
		},
		Problems: codes(bodyCodes, wire.NotFound, wire.KeyRequired, wire.KeyInvalid, wire.Conflict, wire.Expired, wire.Reconciling, wire.QuotaExceeded, wire.RateLimited),
	}, {
		Pattern: "POST /v1/flights:claim", ID: "claimJobs", Tag: tagJobs, Summary: "Ask for jobs",
		About: "A worker's request. It is answered when a job of the actions is ready, with at most `slots` jobs, or with none when the wait is over: then ask again. " +
			"Each job is like the answer to an open: `proceed` means act, then report; `verify` means look the effect up first. All are held by your `session`, which you renew. " +
			"A job's time-out has run since `age_ms` before the answer, so count it from the moment when you sent the claim, plus `served_ms`, minus `age_ms`.\n\n" +
			"If the answer is lost, send the same claim again, to any node, with the same `nonce` and `not_after`: you get the same jobs, or fewer. " +
			"The nonce of a job's attempt is the claim's, a dot, and the flight id. Abandon an attempt that your renewals list and that you do not know; abandon jobs that you do not begin.",
		Parameters: []string{wire.HeaderNamespace}, Request: wire.ClaimRequest{},
		Example:  `{"session":"ses_…","nonce":"7b1f0c9a52d94e0f","not_after":1769860830000,"actions":["charge"],"slots":16,"wait_ms":15000}`,
		Answers:  []Answer{{Status: http.StatusOK, About: "the jobs that you have now; none: ask again", Content: jsonContent(wire.ClaimAnswer{})}},
		Problems: codes(bodyCodes, wire.NotFound, wire.LeaseLost, wire.TooManyOpen, wire.LeaseUnavailable, wire.Reconciling, wire.QuotaExceeded, wire.RateLimited),
	}}
}
