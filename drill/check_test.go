package drill

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/internal/crashpoint"
)

func opened(n uint32) client.Event { return client.Event{Kind: "opened", Attempt: n} }
func lost(n uint32) client.Event {
	return client.Event{Kind: "lost", Attempt: n, Outcome: "unknown"}
}
func reported(n uint32, outcome string) client.Event {
	return client.Event{Kind: "reported", Attempt: n, Outcome: outcome}
}

const key, token1, token2 = "k", "t1", "t2"

func receipt(attempt uint32, source string) Outcome {
	return Outcome{ExternalID: "T-1", Digest: "sha256:1", Attempt: attempt, Body: `{"id":"T-1"}`, Source: source}
}

// resentFacts returns the facts of a run in which a second attempt got the ticket of the first, which was lost.
func resentFacts() Facts {
	return Facts{
		Tickets:  []string{"T-1"},
		Requests: []Request{{Key: key, Token: token1}, {Key: key, Token: token2}},
		Results:  []Outcome{receipt(2, "executed"), receipt(2, "replayed")},
		Failed:   []uint32{1},
		State:    "succeeded", Receipts: []Outcome{receipt(2, "")},
		History: []client.Event{opened(1), lost(1), opened(2), reported(2, "succeeded")},
	}
}

// lookedUpFacts returns the facts of a run in which a look-up found the effect of a lost attempt.
func lookedUpFacts() Facts {
	f := resentFacts()
	f.Requests = f.Requests[:1]
	f.Results = []Outcome{receipt(1, "replayed"), receipt(1, "replayed")}
	f.Receipts = []Outcome{receipt(1, "")}
	f.History = []client.Event{opened(1), lost(1), {Kind: "verifying", Attempt: 1}, {Kind: "verification_reported", Attempt: 1, Note: "happened"}}
	return f
}

// resolvedFacts returns the facts of a run in which a person found that the effect had happened.
func resolvedFacts() Facts {
	f := lookedUpFacts()
	f.History = []client.Event{opened(1), lost(1), {Kind: "in_doubt", Attempt: 1}, {Kind: "resolved", Attempt: 1, Note: "happened: the CRM has T-1"}}
	return f
}

func callerKilled(recovery string) Run {
	return Run{Recovery: recovery, Victim: VictimCaller, Point: crashpoint.AfterEffect}
}

func TestCheck_AcceptsKeptPromises(t *testing.T) {
	require.Empty(t, Check(callerKilled("resend"), resentFacts()))
	require.Empty(t, Check(callerKilled("verify"), lookedUpFacts()))
	require.Empty(t, Check(callerKilled("hold"), resolvedFacts()))
	undisturbed := Facts{
		Tickets: []string{"T-1"}, Requests: []Request{{Key: key, Token: token1}}, State: "succeeded",
		Results: []Outcome{receipt(1, "executed"), receipt(1, "replayed")}, Receipts: []Outcome{receipt(1, "")},
		History: []client.Event{opened(1), reported(1, "succeeded")},
	}
	require.Empty(t, Check(Run{Recovery: "hold", Victim: VictimFlightd, Point: crashpoint.BeforeOpen}, undisturbed))
}

func TestCheck_FindsBrokenPromises(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		says   string
	}{
		"not performed":   {func(f *Facts) { f.Error = "not reached" }, "not reached"},
		"two tickets":     {func(f *Facts) { f.Tickets = append(f.Tickets, "T-2") }, "2 tickets for one intent"},
		"no ticket":       {func(f *Facts) { f.Tickets = nil }, "0 tickets for one intent"},
		"another key":     {func(f *Facts) { f.Requests[1].Key = "other" }, "the idempotency key was not the same in all requests"},
		"no key":          {func(f *Facts) { f.Requests[0].Key, f.Requests[1].Key = "", "" }, "the idempotency key was not the same in all requests"},
		"older token":     {func(f *Facts) { f.Requests[1].Token = "t0" }, "request 2 has an older fencing token than the one before"},
		"not ended":       {func(f *Facts) { f.State = "in_doubt" }, "the flight is in_doubt and not succeeded"},
		"overlap":         {func(f *Facts) { f.Overlap = true }, "flightd saw evidence of a second effect"},
		"no receipt":      {func(f *Facts) { f.Receipts = nil }, "0 receipts for one key"},
		"two receipts":    {func(f *Facts) { f.Receipts = append(f.Receipts, receipt(1, "")) }, "2 receipts for one key"},
		"false receipt":   {func(f *Facts) { f.Tickets[0] = "T-9" }, `the receipt names "T-1", which is not a ticket of the CRM`},
		"other digest":    {func(f *Facts) { f.Results[1].Digest = "sha256:2" }, "answer 2 differs from the receipt"},
		"other bytes":     {func(f *Facts) { f.Results[1].Body = `{"id": "T-1"}` }, "answer 2 differs from the receipt"},
		"other attempt":   {func(f *Facts) { f.Results[0].Attempt = 1 }, "answer 1 differs from the receipt"},
		"nobody replayed": {func(f *Facts) { f.Results = f.Results[:1]; f.Results[0].Source = "executed" }, "no duplicate was answered with the receipt"},
		"hidden failure":  {func(f *Facts) { f.History = without(f.History, "lost") }, "the history does not show that attempt 1 failed"},
		"hidden attempt":  {func(f *Facts) { f.History = f.History[1:] }, "the history does not show that attempt 1 failed"},
		"open end":        {func(f *Facts) { f.History = append(f.History, opened(3)) }, "the history does not show how attempt 3 ended"},
		"no success":      {func(f *Facts) { f.History = f.History[:len(f.History)-1] }, "the history has 0 successes"},
		"two successes":   {func(f *Facts) { f.History = append(f.History, reported(1, "succeeded")) }, "the history has 2 successes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := resentFacts()
			test.change(&f)
			broken := Check(callerKilled("resend"), f)
			found := slices.ContainsFunc(broken, func(b string) bool { return len(b) >= len(test.says) && b[:len(test.says)] == test.says })
			require.True(t, found, "%v", broken)
		})
	}
}

func without(events []client.Event, kind string) []client.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e client.Event) bool { return e.Kind == kind })
}

func TestCheck_FalseFindingIsNoSuccess(t *testing.T) {
	f := lookedUpFacts()
	f.History[3].Note = "not_happened"
	require.Contains(t, Check(callerKilled("verify"), f), "the history has 0 successes")
}

func TestCheck_WithoutFlightdCountsTicketsOnly(t *testing.T) {
	alone := Run{Recovery: NoRecovery, Victim: VictimCaller, Point: crashpoint.AfterEffect}
	require.Equal(t, []string{"2 tickets for one intent"}, Check(alone, Facts{Tickets: []string{"T-1", "T-2"}, Requests: make([]Request, 2)}))
	require.Empty(t, Check(alone, Facts{Tickets: []string{"T-1"}, Requests: make([]Request, 1)}))
}
