package httpapi_test

import (
	"net/http"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

func restoreOperations() []Operation {
	limit, after := typedSchema("integer"), typedSchema("string")
	from, to := int64(1), int64(httpapi.MaxPage)
	limit.Minimum, limit.Maximum, limit.Default = &from, &to, httpapi.MaxPage
	return []Operation{{
		Pattern: "GET /v1/backup", ID: "backUp", Tag: tagAdmin, Summary: "Back up the ledger",
		About: "The answer is a tar archive: the ledger as of now, the reports in the node's spool, and at the end `manifest.json` with lengths and checksums. An archive without it is incomplete. " +
			"Callers are served meanwhile. `flightd backup DIR` sends this request; `flightd restore` makes a data directory of the archive. The request needs a token of all namespaces.",
		Answers:  []Answer{{Status: http.StatusOK, About: "the archive", Content: []Content{textContent(wire.TypeTar)}}},
		Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "GET /v1/restore", ID: "getRestore", Tag: tagAdmin, Summary: "Describe the state of a restored ledger",
		About:   "While `reconciling` is true, an open that has no final answer is answered `reconciling`. The request needs a token of all namespaces.",
		Answers: okAnswer("the state", wire.Restore{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "GET /v1/restore/asked", ID: "listAsked", Tag: tagAdmin, Summary: "List the keys that may run when the restore is finished",
		About: "All flights of the restored ledger without a receipt or a doubt, jobs among them, and the steps of the sagas that are not over; then the other keys that callers have asked for since the restore. " +
			"Each may have succeeded in the ledger that was lost. Import the receipts of those that have. The request needs a token of all namespaces.",
		Query: []Parameter{
			{Name: "limit", Schema: limit, About: "the number of keys at which the page ends; the steps of a saga are on one page"},
			{Name: "after", Schema: after, About: "the `next` of an earlier page, unchanged"},
		},
		Answers: okAnswer("a page of keys", wire.AskedPage{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "POST /v1/restore:finish", ID: "finishRestore", Tag: tagAdmin, Summary: "Let flights open again in a restored ledger",
		About: "A key that has no receipt is opened again after this: its effect happens a second time if it happened in the ledger that was lost. " +
			"Before the hold is over, callers of that ledger may still act, and the request is answered `precondition_failed` unless `force` is true. The request needs a token of all namespaces.",
		Parameters: []string{wire.HeaderActor}, Request: wire.FinishRestore{}, Example: `{"reason":"all charges since the backup were imported","actor":"maria"}`,
		Answers: okAnswer("the ledger is no longer reconciling", wire.Restore{}), Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed),
	}}
}
