package drill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

// Facts are what was found after a run. They come from the CRM's books, from the callers, and from flightd.
type Facts struct {
	// Trouble is why the run could not be brought to its end; "" when it could.
	Trouble string `json:"trouble,omitempty"`
	// Tickets are the ids of those that the CRM made.
	Tickets []string `json:"tickets"`
	// Requests are all that asked the CRM for a ticket, in the order in which they came.
	Requests []Request `json:"requests"`
	// Results are what callers were given, the first one first.
	Results []Outcome `json:"results"`
	// Failed are the attempts that a caller held and did not bring to a success: it was killed, or saw an error.
	Failed []uint32 `json:"failed_attempts,omitempty"`

	// What flightd says of the key; empty in runs without it.
	State    string         `json:"state,omitempty"`
	Receipts []Outcome      `json:"receipts,omitempty"` // of all generations
	Overlap  bool           `json:"overlap,omitempty"`
	History  []client.Event `json:"history,omitempty"`
}

// Request is one request for a ticket as the CRM saw it.
type Request struct {
	Key   string `json:"idempotency_key"`
	Token string `json:"fencing_token,omitempty"`
}

// Outcome is what a caller was given, or what the ledger has: which ticket, and the receipt that says so.
type Outcome struct {
	ExternalID string `json:"external_id"`
	Digest     string `json:"digest,omitempty"`
	Attempt    uint32 `json:"attempt,omitempty"`
	Source     string `json:"source,omitempty"` // executed, joined or replayed; of callers only
	Body       string `json:"body,omitempty"`
}

// same reports whether two outcomes are one receipt.
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

// Check holds the facts of a run against what DESIGN.md promises for its recovery, and says what is broken; nothing
// when all is kept. In every run the mishap passes, so the intent must be carried out in the end, and once: by the
// provider's own deduplication under resend, because somebody looked first under verify, because a person did under
// hold.
func Check(run Run, f Facts) []string {
	if f.Trouble != "" {
		return []string{f.Trouble}
	}
	var broken []string
	if n := len(f.Tickets); n != 1 {
		broken = append(broken, fmt.Sprintf("%d tickets for one intent", n))
	}
	if run.Recovery == NoRecovery {
		return broken // there is nothing else that could be promised
	}
	broken = append(broken, checkRequests(f)...)
	broken = append(broken, checkReceipt(f)...)
	return append(broken, checkHistory(f)...)
}

// checkRequests looks at what the CRM was asked.
func checkRequests(f Facts) []string {
	var broken []string
	if !f.SameKey() {
		broken = append(broken, "the idempotency key was not the same in all requests")
	}
	for i := 1; i < len(f.Requests); i++ {
		if f.Requests[i].Token < f.Requests[i-1].Token {
			broken = append(broken, fmt.Sprintf("request %d came with an older fencing token than the one before", i+1))
		}
	}
	return broken
}

// checkReceipt: one committed receipt per key, it tells the truth, and every caller got exactly it.
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
		broken = append(broken, fmt.Sprintf("the receipt names %q, which is no ticket of the CRM's", receipt.ExternalID))
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

// checkHistory: every attempt that failed is in the history as failed, every one that was opened has an end, and
// exactly one thing made the flight succeed.
func checkHistory(f Facts) []string {
	var broken []string
	opened, failed, ended := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
	successes := 0
	for _, e := range f.History {
		success := succeeds(e)
		if success {
			successes++
		}
		switch {
		case e.Kind == flight.EventOpened.String():
			opened[e.Attempt] = true
		case fails(e):
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

// succeeds reports whether an event made its flight succeed: the attempt's report, a look-up, or a person.
func succeeds(e client.Event) bool {
	switch e.Kind {
	case flight.EventReported.String():
		return e.Outcome == flight.Succeeded.String()
	case flight.EventVerdict.String(), flight.EventResolved.String():
		said, _, _ := strings.Cut(e.Note, ":") // behind it stands a person's reason
		return said == flight.Happened.String()
	}
	return false
}

// fails reports whether an event says that its attempt did not succeed, or that nobody knows.
func fails(e client.Event) bool {
	switch e.Kind {
	case flight.EventLost.String(), flight.EventAbandoned.String():
		return true
	case flight.EventReported.String():
		return e.Outcome != flight.Succeeded.String()
	}
	return false
}
