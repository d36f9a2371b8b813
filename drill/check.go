package drill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

// Facts are the observations after a run, taken from the CRM's records, from the callers, and from flightd.
type Facts struct {
	// Error says why the run could not be completed; "" if it was.
	Error string `json:"error,omitempty"`
	// Tickets are the ids of the tickets that the CRM created.
	Tickets []string `json:"tickets"`
	// Requests are all ticket requests that the CRM received, in their order.
	Requests []Request `json:"requests"`
	// Results are the results that the callers got, in their order.
	Results []Outcome `json:"results"`
	// Failed are the attempts that did not succeed: their caller was killed, or got an error.
	Failed []uint32 `json:"failed_attempts,omitempty"`

	// The fields below are flightd's flight; they are empty in runs without flightd.
	State    string         `json:"state,omitempty"`
	Receipts []Outcome      `json:"receipts,omitempty"` // of all generations
	Overlap  bool           `json:"overlap,omitempty"`
	History  []client.Event `json:"history,omitempty"`
}

// Request is one ticket request that the CRM received.
type Request struct {
	Key   string `json:"idempotency_key"`
	Token string `json:"fencing_token,omitempty"`
}

// Outcome is a receipt and its ticket, as a caller got it or as the ledger stores it.
type Outcome struct {
	ExternalID string `json:"external_id"`
	Digest     string `json:"digest,omitempty"`
	Attempt    uint32 `json:"attempt,omitempty"`
	Source     string `json:"source,omitempty"` // executed, joined or replayed; of callers only
	Body       string `json:"body,omitempty"`
}

// same reports whether two outcomes are the same receipt.
func (o Outcome) same(other Outcome) bool {
	o.Source, other.Source = "", ""
	return o == other
}

// SameKey reports whether all requests for a ticket carried one idempotency key.
func (f *Facts) SameKey() bool {
	for _, r := range f.Requests {
		if r.Key == "" || r.Key != f.Requests[0].Key {
			return false
		}
	}
	return true
}

// Check compares the facts of a run with the promises of its recovery policy (docs/guarantees.md), and returns the
// broken ones. Every disturbance is temporary, so the effect must have happened in the end, and exactly once: under
// resend because the provider deduplicates, under verify because a caller looked it up first, under hold because a
// person did.
func Check(run Run, f Facts) []string {
	if f.Error != "" {
		return []string{f.Error}
	}
	var broken []string
	if n := len(f.Tickets); n != 1 {
		broken = append(broken, fmt.Sprintf("%d tickets for one intent", n))
	}
	if run.Recovery == NoRecovery {
		return broken // without flightd only the number of tickets can be checked
	}
	broken = append(broken, checkRequests(f)...)
	broken = append(broken, checkReceipt(f)...)
	return append(broken, checkHistory(f)...)
}

// checkRequests checks the requests at the CRM: one idempotency key, and fencing tokens that never decrease.
func checkRequests(f Facts) []string {
	var broken []string
	if !f.SameKey() {
		broken = append(broken, "the idempotency key was not the same in all requests")
	}
	for i := 1; i < len(f.Requests); i++ {
		if f.Requests[i].Token < f.Requests[i-1].Token {
			broken = append(broken, fmt.Sprintf("request %d has an older fencing token than the one before", i+1))
		}
	}
	return broken
}

// checkReceipt checks that the key has one receipt, that it names the real ticket, and that every caller got it.
func checkReceipt(f Facts) []string {
	var broken []string
	if f.State != flight.StateSucceeded.String() {
		broken = append(broken, fmt.Sprintf("the flight is %s and not succeeded", f.State))
	}
	if f.Overlap {
		broken = append(broken, "flightd saw evidence of a second effect")
	}
	if n := len(f.Receipts); n != 1 {
		return append(broken, fmt.Sprintf("%d receipts for one key", n))
	}
	receipt := f.Receipts[0]
	if !slices.Contains(f.Tickets, receipt.ExternalID) {
		broken = append(broken, fmt.Sprintf("the receipt names %q, which is not a ticket of the CRM", receipt.ExternalID))
	}
	replayed := 0
	for i, r := range f.Results {
		if !r.same(receipt) {
			broken = append(broken, fmt.Sprintf("answer %d differs from the receipt: %+v, not %+v", i+1, r, receipt))
		}
		if r.Source != "executed" {
			replayed++
		}
	}
	if replayed == 0 {
		broken = append(broken, "no duplicate was answered with the receipt")
	}
	return broken
}

// checkHistory checks that the history shows every failed attempt as failed and an end for every opened attempt, and
// that exactly one event made the flight succeed.
func checkHistory(f Facts) []string {
	var broken []string
	opened, failed, ended := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
	successes := 0
	for _, e := range f.History {
		success := isSuccess(e)
		if success {
			successes++
		}
		switch {
		case e.Kind == flight.EventOpened.String():
			opened[e.Attempt] = true
		case isFailure(e):
			failed[e.Attempt], ended[e.Attempt] = true, true
		case success:
			ended[e.Attempt] = true
		}
	}
	if successes != 1 {
		broken = append(broken, fmt.Sprintf("the history has %d successes", successes))
	}
	for _, n := range f.Failed {
		if !opened[n] || !failed[n] {
			broken = append(broken, fmt.Sprintf("the history does not show that attempt %d failed", n))
		}
	}
	for n := range opened {
		if !ended[n] {
			broken = append(broken, fmt.Sprintf("the history does not show how attempt %d ended", n))
		}
	}
	slices.Sort(broken)
	return broken
}

// isSuccess reports whether an event made its flight succeed: a report, a verification, or a resolution.
func isSuccess(e client.Event) bool {
	switch e.Kind {
	case flight.EventReported.String():
		return e.Outcome == flight.OutcomeSucceeded.String()
	case flight.EventVerificationReported.String(), flight.EventResolved.String():
		finding, _, _ := strings.Cut(e.Note, ":") // a person's reason follows the colon
		return finding == flight.FindingHappened.String()
	}
	return false
}

// isFailure reports whether an event says that its attempt failed or that its outcome is unknown.
func isFailure(e client.Event) bool {
	switch e.Kind {
	case flight.EventLost.String(), flight.EventAbandoned.String():
		return true
	case flight.EventReported.String():
		return e.Outcome != flight.OutcomeSucceeded.String()
	}
	return false
}
