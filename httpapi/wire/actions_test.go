package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// The lane of a job is the scalar at the pointer; anything else is an error at its place.
func TestFill_LaneByPointer(t *testing.T) {
	for _, c := range []struct{ by, input, lane, bad string }{
		{by: "/customer", input: `{"customer":"c7"}`, lane: "c7"},
		{by: "/customer", input: `{"customer":7.0}`, lane: "7"},
		{by: "/customer", input: `{"customer":false}`, lane: "false"},
		{by: "/to/1/a~1b", input: `{"to":[0,{"a/b":"\u00e9"}]}`, lane: "é"},
		{by: "/customer", input: `{"customer":null}`, bad: "nothing is there"},
		{by: "/customer", input: `{"customer":{"id":7}}`, bad: "it is no text, number or boolean"},
		{by: "/customer", input: `{"customer":["c7"]}`, bad: "it is no text, number or boolean"},
		{by: "/customer", input: `{"customer":""}`, bad: "the text is empty"},
		{by: "/customer", input: `{"customer":"a\u0000b"}`, bad: "has a control character"},
		{by: "/customer", input: `{"customer":"` + strings.Repeat("x", 256) + `"}`, bad: "has 256 bytes"},
		{by: "/customer", input: `{"Customer":"c7"}`, bad: "nothing is there"},
		{by: "/customer", input: `"c7"`, bad: "nothing is there"},
		{by: "/customer", input: ``, bad: "nothing is there"},
		{by: "/to/01", input: `{"to":["a","b"]}`, bad: "nothing is there"},
		{by: "/to/-", input: `{"to":["a","b"]}`, bad: "nothing is there"},
		{by: "/to/2", input: `{"to":["a","b"]}`, bad: "nothing is there"},
	} {
		r := wire.SubmitRequest{Input: []byte(c.input)}
		bad := r.Fill(&wire.ActionPolicy{Policy: wire.Policy{Recovery: "resend"}, Lane: &wire.LaneRule{By: c.by, Limit: 3}})
		require.Equal(t, "resend", r.Recovery)
		if c.bad != "" {
			require.NotNil(t, bad, c.input)
			require.Contains(t, bad.Detail, c.bad, c.input)
			require.Equal(t, "/input"+c.by, bad.Pointer)
			continue
		}
		require.Nil(t, bad, c.input)
		require.Equal(t, c.lane, r.Lane)
		require.EqualValues(t, 3, r.LaneLimit)
	}
}

// Policy, retries and lane of a submission count, each as a whole.
func TestFill_TheSubmissionCounts(t *testing.T) {
	document := &wire.ActionPolicy{Policy: wire.Policy{Recovery: "resend", ProviderWindowMS: 1000}, Retry: &wire.Retry{Attempts: 3}, Lane: &wire.LaneRule{By: "/c", Limit: 2}}
	own := wire.SubmitRequest{Policy: wire.Policy{AttemptTimeoutMS: 5}, Retry: &wire.Retry{Attempts: 9}, Lane: "mine"}
	filled := own
	require.Nil(t, filled.Fill(document))
	require.Equal(t, own, filled)
	none := wire.SubmitRequest{Lane: "mine", LaneLimit: 7}
	require.Nil(t, none.Fill(document))
	require.Equal(t, wire.SubmitRequest{Policy: document.Policy, Retry: document.Retry, Lane: "mine", LaneLimit: 7}, none)
}

// A worker's policy is compared in the fields that it has; texts in another form, and defaults, are no difference.
func TestDifferences(t *testing.T) {
	document := wire.ActionPolicy{Policy: wire.Policy{Retention: "24h"}}
	document.Complete()
	own := wire.ActionPolicy{Policy: wire.Policy{Recovery: "hold", Retention: "1d"}, Retry: &wire.Retry{Attempts: 8}}
	require.Empty(t, own.Differences(&document, true))
	own.Retry, own.Recovery, own.ProviderWindowMS = &wire.Retry{Attempts: 2, FirstMS: 90_000}, "resend", 1500
	require.Equal(t, []wire.PolicyDifference{
		{Field: "recovery", Own: "resend", Document: "hold", Refuses: true}, {Field: "provider_window", Own: "1.5s", Refuses: true},
		{Field: "retry.attempts", Own: "2", Document: "8"}, {Field: "retry.first", Own: "1m30s", Document: "1s"},
	}, own.Differences(&document, true))
	for ms, text := range map[int64]string{0: "", 1: "1ms", 60_000: "1m", 3_600_000: "1h", 3_660_000: "1h1m", 86_400_000: "24h", 36_000_000: "10h", 600_000: "10m"} {
		require.Equal(t, text, wire.SpanText(ms))
	}
}

// A retry policy without pauses has those of the server: an outage must not use up all attempts at once.
func TestRetry_PausesByDefault(t *testing.T) {
	for body, want := range map[string]string{
		`{"attempts":3}`: "1s 1m0s", `{"attempts":3,"first_ms":120000}`: "2m0s 2m0s", `{"attempts":3,"max_ms":500}`: "500ms 500ms", `{"attempts":3,"first_ms":1,"max_ms":2}`: "1ms 2ms",
	} {
		r, bad := wire.Decode[wire.SubmitRequest]([]byte(`{"action":"a","id":"1","retry":` + body + `}`))
		require.Nil(t, bad)
		_, s, _, bad := r.Parse("default", 0)
		require.Nil(t, bad)
		require.Equal(t, want, s.Policy.Retry.MinBackoff.String()+" "+s.Policy.Retry.MaxBackoff.String(), body)
	}
}

// Receipts that are forgotten while their flight may still be retried are rejected, in submissions and in documents of actions.
func TestRetention_CoversTheRetries(t *testing.T) {
	for _, c := range []struct {
		retention string
		within    time.Duration
		ok        bool
	}{{"1h", 20 * time.Hour, false}, {"20h", 20 * time.Hour, true}, {"", 31 * 24 * time.Hour, false}, {"40d", 31 * 24 * time.Hour, true}, {"1h", 0, true}} {
		retry := &wire.Retry{Attempts: 3, WithinMS: c.within.Milliseconds()}
		document := wire.ActionPolicy{Policy: wire.Policy{Retention: c.retention}, Retry: retry}
		job := wire.SubmitRequest{Action: "a", ID: "1", Policy: document.Policy, Retry: retry}
		_, _, _, bad := job.Parse("default", 1)
		for _, bad := range []*wire.Invalid{bad, document.Check()} {
			require.Equal(t, c.ok, bad == nil, "%+v: %v", c, bad)
			if bad != nil {
				require.Equal(t, "/retention", bad.Pointer)
				require.NotEmpty(t, bad.Hint)
			}
		}
	}
}

// A digest does not let an input through that workers read in two ways.
func TestSubmission_ChecksTheInputBesideADigest(t *testing.T) {
	for _, fingerprint := range []string{"", "none", "sha256:" + strings.Repeat("a", 64)} {
		job := wire.SubmitRequest{Action: "a", ID: "1", Input: []byte(`{"id": 1729384756102938475}`), Fingerprint: fingerprint}
		_, _, _, bad := job.Parse("default", 1)
		require.NotNil(t, bad, fingerprint)
		require.Equal(t, wire.InputInvalid, bad.Code)
	}
}
