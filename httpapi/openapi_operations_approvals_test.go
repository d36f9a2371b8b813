package httpapi_test

import (
	"net/http"
	"slices"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

func approvalOperations() []Operation {
	filters := slices.DeleteFunc(listParameters(), func(p Parameter) bool { return !slices.Contains(httpapi.ApprovalFilters(), p.Name) })
	const about = "The decision is about the version in If-Match, and so about one input, one policy and one generation. The first decision counts: the same one again gets the same answer with `Idempotent-Replayed: true`, by whomever; " +
		"another one is answered `precondition_failed`, and names who decided, and when. "
	decision := func(verb, id, summary, more, example string) Operation {
		o := operatorOperation(verb, id, summary, about+more, wire.ApprovalDecision{}, example)
		o.Answers[0].Optional = append([]string{wire.HeaderReplayed}, o.Answers[0].Optional...)
		o.Problems = slices.DeleteFunc(o.Problems, func(c wire.Code) bool { return c == wire.KeyRequired || c == wire.KeyInvalid })
		return o
	}
	return []Operation{{
		Pattern: "GET /v1/approvals", ID: "listApprovals", Tag: tagOperator, Summary: "List the flights that await approval, newest first",
		About:      "`approval` of each flight says who asks, until when, and under which policy. Read the input before you decide: `GET /v1/flights/{id}/input`.",
		Parameters: []string{wire.HeaderNamespace}, Query: filters,
		Answers:  []Answer{{Status: http.StatusOK, About: "a page of flights", Optional: []string{"Link"}, Content: jsonContent(wire.FlightPage{})}},
		Problems: codes(readCodes, wire.KeyInvalid, wire.RateLimited),
	},
		decision("approve", "approveFlight", "Approve a flight", "The next caller, or a worker, may then act.", `{"reason":"checked the order","actor":"maria"}`),
		decision("reject", "rejectFlight", "Reject a flight", "The flight is cancelled, and its effect does not happen.", `{"reason":"the customer is unknown","actor":"maria"}`),
	}
}
