package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

const tripYAML = `# what the examples have
saga: trip
version: 3
deadline: 2d
steps:
  hotel:   { action: hotel.book, input: {$from: /input}, undo: { action: hotel.cancel, input: {room: {$from: /steps/hotel/body/id}} } }
  seat:    { action: seat.book,  input: {$from: /input}, undo: { action: seat.cancel, input: {pnr: {$from: /steps/seat/body/pnr}} } }
  manager: { approval: { expires: 24h }, needs: [hotel, seat], if: { value: /input/cents, above: 100000 } }
  pay:
    action: charge
    needs: [hotel, seat, manager]
    input: {cents: {$from: /input/cents}, pnr: {$from: /steps/seat/body/pnr}}
    recovery: resend
    provider_window: 24h
    retry: { attempts: 8, first: 1s, max: 1m, within: 20h }
    timeout: 30s
    pivot: true
  voucher: { action: mail, needs: [pay], input: {to: {$from: /input/mail}}, retry: { within: 72h } }
`

func TestParseYAML_TheExample(t *testing.T) {
	d, places, err := ParseYAML([]byte(tripYAML))
	require.NoError(t, err)
	require.Empty(t, Lint(d))
	require.Equal(t, "trip@3", d.ID())
	require.Equal(t, "trip.3", d.DocumentName())
	require.Equal(t, flight.DocumentID{Namespace: "test", Kind: flight.KindSaga, Name: d.DocumentName()}, flight.DefinitionID("test", d.ID()))
	require.Equal(t, Place{10, 5}, places.Of("/steps/3/action"))
	require.Equal(t, Place{9, 3}, places.Of("/steps/3/no_undo"), "the nearest value")
	require.Equal(t, flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: 24 * time.Hour, AttemptTimeout: 30 * time.Second,
		Retry: flight.RetryPolicy{Attempts: 8, MinBackoff: time.Second, MaxBackoff: time.Minute, Within: 20 * time.Hour}}, d.PolicyOf(3, false))
	require.Equal(t, flight.Policy{Retry: wire.DefaultRetry}, d.PolicyOf(0, true))
	require.Equal(t, flight.Policy{Retry: flight.RetryPolicy{Attempts: maxAttempts, MinBackoff: time.Second, MaxBackoff: time.Minute, Within: 72 * time.Hour}}, d.PolicyOf(4, false))
	require.True(t, d.PolicyOf(2, false).Approval)
	require.Equal(t, []string{"hotel.book", "hotel.cancel", "trip.manager"}, []string{d.ActionOf(0, false), d.ActionOf(0, true), d.ActionOf(2, false)})
	key, err := d.KeyOf(flight.MustKey("ns/trip/b-42"), 0, true)
	require.NoError(t, err)
	require.Equal(t, "ns/trip/b-42#hotel.undo", key.String())

	again, err := Parse(d.JSON())
	require.NoError(t, err)
	require.Equal(t, string(d.JSON()), string(again.JSON()))
	require.Contains(t, string(d.JSON()), `"deadline":"48h"`)
	list := strings.NewReplacer("steps:\n  hotel:   {", "steps:\n- { name: hotel,", "  seat:    {", "- { name: seat,", "  manager: {", "- { name: manager,",
		"  pay:\n    action", "- name: pay\n  action", "\n    ", "\n  ", "  voucher: {", "- { name: voucher,").Replace(tripYAML)
	same, _, err := ParseYAML([]byte(list))
	require.NoError(t, err, list)
	require.Equal(t, string(d.JSON()), string(same.JSON()), "steps as a list")
}

func TestParse_SaysWhereAndWhy(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`[]`, "a definition is a JSON object"},
		{`{"saga": "trip", "step": []}`, "/step: unknown field"},
		{`{"saga": "trip", "saga": "trap"}`, "/saga: duplicate field"},
		{`{"steps": [{"name": "a", "undo": {"acton": "b"}}]}`, "/steps/0/undo/acton: unknown field"},
		{`{"steps": [{"name": "a", "timeout": "soon"}]}`,
			"/steps/0/timeout: invalid value: \"soon\" is not a duration such as 30s, 24h or 7d"},
		{`{"steps": [{"name": "a", "timeout": 30}]}`, "/steps/0/timeout: invalid value: JSON value must be string type"},
		{`{"steps": [{"name": "a", "needs": "b"}]}`, "/steps/0/needs: unexpected type: an array is expected, not a string"},
		{`{"steps": []} {}`, "trailing data after the JSON document, at byte 15"},
	} {
		_, err := Parse([]byte(c.text))
		require.EqualError(t, err, c.want, c.text)
	}
	for _, c := range []struct{ text, want string }{
		{"", "a definition begins with the line saga: NAME"},
		{"saga: trip\nsteps:\n  a: {acton: b}\n", "/steps/0/acton: line 3, column 7: unknown field"},
		{"saga: trip\nsteps:\n  a:\n", "/steps/0: line 3, column 3: step a is not a mapping of fields; write {} for a step without any"},
		{"saga: trip\nsteps:\n- name: a\n  timeout: 0x10\n", "/steps/0/timeout: line 4, column 12: 0x10 is no number of JSON; write it in decimal digits, or as a text in quotation marks"},
		{"saga: trip\nsteps:\n  a: {input: &x {}}\n", "/steps/0/input: line 3, column 14: anchor is not supported here; write the value out"},
		{"saga: a\n---\nsaga: b\n", "line 3, column 5: a file has one definition"},
		{"saga: a\n---\n---\nsaga: b\n", "line 4, column 5: a file has one definition"},
		{"---\n# head\n---\n---\nsaga: a\n---\nsaga: b\n", "line 7, column 5: a file has one definition"},
		{"saga: a\nsteps:\n  a: {input: {zip: 0100}}\n", "/steps/0/input/zip: line 3, column 20: 0100 is no number of JSON; write it in decimal digits, or as a text in quotation marks"},
	} {
		_, _, err := ParseYAML([]byte(c.text))
		require.EqualError(t, err, c.want, c.text)
	}
	_, _, err := ParseYAML([]byte("saga: [\n"))
	require.ErrorContains(t, err, "[1:7]")
}

func TestLint(t *testing.T) {
	for _, c := range []struct{ steps, want string }{
		{``, "/steps: a saga has at least one step"},
		{`{"name": "", "no_undo": true}`, "/steps/0/name: the name of the step is missing"},
		{`{"name": "a b", "no_undo": true}`, `/steps/0/name: step a b: "a b": character 2 is ' '; allowed are letters, digits, '.', '_' and '-'`},
		{`{"name": "a.undo", "no_undo": true}`, "/steps/0/name: step a.undo: the name ends with .undo, as only the keys of undos do (the undo of a step is its field undo)"},
		{`{"name": "a", "no_undo": true}, {"name": "a", "no_undo": true}`, "/steps/1/name: step a: step 1 has the same name"},
		{`{"name": "a", "action": "a/b", "no_undo": true}`, `/steps/0/action: step a: "a/b": character 2 is '/'; allowed are letters, digits, '.', '_' and '-'`},
		{`{"name": "a", "no_undo": true, "needs": ["hotels"]}, {"name": "hotel", "no_undo": true}`, `/steps/0/needs/0: step a: there is no step "hotels" (do you mean hotel?)`},
		{`{"name": "a", "no_undo": true, "needs": ["a"]}`, "/steps/0/needs/0: step a: the step needs itself"},
		{`{"name": "b", "no_undo": true}, {"name": "a", "no_undo": true, "needs": ["b", "b"]}`, "/steps/1/needs/1: step a: step b is named twice"},
		{`{"name": "a", "no_undo": true, "needs": ["b"]}, {"name": "b", "no_undo": true, "needs": ["a"]}`,
			"/steps/0/needs/0: step a: a cycle: step b comes after this step\n/steps/1/needs/0: step b: a cycle: step a comes after this step"},
		{`{"name": "a"}`, "/steps/0: step a: the undo is missing (give it an undo, or write no_undo: true if there is nothing to undo)"},
		{`{"name": "a", "undo": {}, "no_undo": true}`, "/steps/0/no_undo: step a: the step has an undo and says that it has none (remove one of the two)"},
		{`{"name": "a", "pivot": true}, {"name": "b", "undo": {}}`,
			"/steps/1: step b: the step comes neither before nor after the pivot a (add it to the needs of a, or let it need a)"},
		{`{"name": "a", "pivot": true}, {"name": "b", "needs": ["a"], "pivot": true}`, "/steps/1/pivot: step b: step a is the pivot already; a saga has at most one"},
		{`{"name": "a", "pivot": true, "undo": {}}`, "/steps/0/undo: step a: nothing is undone from the pivot on, so this undo never runs (remove the undo)"},
		{`{"name": "a", "pivot": true}, {"name": "b", "needs": ["a"], "undo": {}}`,
			"/steps/1/undo: step b: nothing is undone from the pivot on, so this undo never runs (remove the undo)"},
		{`{"name": "a", "pivot": true}, {"name": "b", "needs": ["a"], "approval": {}}`,
			"/steps/1/approval: step b: the approval comes after the pivot: a rejection could stop nothing any more (ask before the pivot)"},
		{`{"name": "a", "pivot": true, "if": {"value": "/input/a", "equals": 1}}`,
			"/steps/0/if: step a: the pivot has a condition: if it is skipped, nothing that comes after it can be undone"},
		{`{"name": "a", "pivot": true, "timer": "1h"}`, "/steps/0/pivot: step a: an approval or a timer cannot be the pivot (make the effect behind it the pivot)"},
		{`{"name": "a", "timer": "1h", "approval": {}}`, "/steps/0/timer: step a: an approval is no timer (make two steps of it)"},
		{`{"name": "a", "timer": "1h", "action": "b"}`, "/steps/0/action: step a: an approval or a timer has no effect of its own, so it cannot have action (remove action)"},
		{`{"name": "a", "timer": "-1h"}`, "/steps/0/timer: step a: -1h is negative"},
		{`{"name": "a", "no_undo": true, "timeout": "400d"}`, "/steps/0/timeout: step a: 9600h is too long; at most 8784h are allowed"},
		{`{"name": "a", "no_undo": true, "timeout": "1500us"}`, "/steps/0/timeout: step a: 1.5ms is not a whole number of milliseconds"},
		{`{"name": "a", "no_undo": true, "recovery": "retry"}`, `/steps/0/recovery: step a: "retry" is none of hold, resend and verify`},
		{`{"name": "a", "no_undo": true, "recovery": "resend", "provider_window": "31d"}`, "/steps/0/provider_window: step a: 744h is longer than the retention of receipts, 720h"},
		{`{"name": "a", "no_undo": true, "provider_window": "1d"}`,
			"/steps/0/provider_window: step a: only recovery resend has a provider window (write recovery: resend, or remove the window)"},
		{`{"name": "a", "no_undo": true, "retry": {"within": "31d"}}`, "/steps/0/retry/within: step a: 744h is longer than the retention of receipts, 720h"},
		{`{"name": "a", "no_undo": true, "retry": {}}`, "/steps/0/retry: step a: neither attempts nor within: the retries would never end"},
		{`{"name": "a", "no_undo": true, "retry": {"attempts": -1}}`, "/steps/0/retry/attempts: step a: -1 is not a number from 1 to 1000000"},
		{`{"name": "a", "undo": {"retry": {"attempts": 1, "first": "2s", "max": "1s"}}}`, "/steps/0/undo/retry/max: step a: 1s is less than first, 2s"},
		{`{"name": "a", "no_undo": true, "if": {}}`, "/steps/0/if: step a: a condition has exactly one of value, succeeded and skipped"},
		{`{"name": "a", "no_undo": true, "if": {"value": "/input/a"}}`, "/steps/0/if: step a: a value is compared with exactly one of equals, not_equals, above and below"},
		{`{"name": "a", "no_undo": true, "if": {"value": "/input/a", "above": "1"}}`, `/steps/0/if/above: step a: "1" is not a number`},
		{`{"name": "a", "no_undo": true, "if": {"value": "/input/a", "equals": [1]}}`, "/steps/0/if/equals: step a: a constant is a text, a number, true, false or null"},
		{`{"name": "a", "no_undo": true, "if": {"succeeded": "b"}}, {"name": "b", "no_undo": true}`,
			"/steps/0/if/succeeded: step a: the step does not come after step b (add b to its needs)"},
		{`{"name": "a", "no_undo": true, "if": {"succeeded": "c"}}`, `/steps/0/if/succeeded: step a: there is no step "c"`},
		{`{"name": "a", "no_undo": true}, {"name": "b", "no_undo": true, "needs": ["a"], "if": {"skipped": "a"}}`,
			"/steps/1/if/skipped: step b: step a has no condition, so it is never skipped"},
		{`{"name": "a", "no_undo": true, "if": {"value": "input", "equals": 1}}`, `/steps/0/if/value: step a: "input" is no JSON pointer: it begins with /`},
		{`{"name": "a", "no_undo": true, "if": {"value": "/output", "equals": 1}}`, "/steps/0/if/value: step a: /output: a pointer begins with /input or /steps"},
		{`{"name": "a", "no_undo": true, "input": {"x": [{"$from": "/steps/b/body"}]}}, {"name": "b", "no_undo": true}`,
			"/steps/0/input/x/0/$from: step a: the step does not come after step b (add b to its needs)"},
		{`{"name": "a", "no_undo": true, "input": {"$from": "/steps/a/body"}}`, "/steps/0/input/$from: step a: the step has not ended yet when this is read"},
		{`{"name": "a", "undo": {"input": {"$from": "/steps/a/boby"}}}`, `/steps/0/undo/input/$from: step a: /steps/a/boby: a step has body, external_id and outcome, and no "boby"`},
		{`{"name": "a", "undo": {"input": {"$from": "/steps/a/outcome/0"}}}`, "/steps/0/undo/input/$from: step a: /steps/a/outcome/0: outcome is a text"},
		{`{"name": "a", "no_undo": true, "input": {"x~y": {"$from": 1}}}`, `/steps/0/input/x~0y/$from: step a: a reference is a JSON pointer in a text (write {"$from": "/input/..."})`},
		{`{"name": "a", "no_undo": true, "input": {"$form": "/input"}}`, "/steps/0/input/$form: step a: a reference is $from, and $form would be sent as it is (write $from)"},
		{`{"name": "a", "no_undo": true, "input": {"$from": "/input", "x": 1}}`, "/steps/0/input: step a: an object with $from is replaced as a whole, so it has no other field"},
		{`{"name": "a", "undo": {}}`, ""},
		{`{"name": "a", "no_undo": true, "if": {"value": "/input/a", "equals": null}}`, ""},
	} {
		d, err := Parse([]byte(`{"saga": "s", "steps": [` + c.steps + `]}`))
		require.NoError(t, err, c.steps)
		var found []string
		for _, f := range Lint(d) {
			found = append(found, f.String())
		}
		require.Equal(t, c.want, strings.Join(found, "\n"), c.steps)
	}

	d := &Definition{Deadline: -1, Steps: make([]Step, MaxSteps+1)}
	for i := range d.Steps {
		d.Steps[i] = Step{Name: fmt.Sprint("s", i), NoUndo: true}
	}
	require.Equal(t, []string{"/saga: the name is missing (write the name of the saga, such as trip)", "/version: the version is missing (versions count from 1)",
		"/deadline: -1ns is negative", "/steps: 33 steps; at most 32 are allowed"}, []string{Lint(d)[0].String(), Lint(d)[1].String(), Lint(d)[2].String(), Lint(d)[3].String()})
	d = &Definition{Saga: "s", Version: 1, Steps: d.Steps[:MaxSteps]}
	require.Empty(t, Lint(d))
	d.Steps[0].Input = json.RawMessage(`"` + strings.Repeat("x", flight.MaxDocument) + `"`)
	require.Contains(t, Lint(d)[0].Detail, "at most 65536 are allowed")
}

// Lint names every unknown field at once, with the field that is meant.
func TestParseYAML_AllUnknownFields(t *testing.T) {
	_, places, err := ParseYAML([]byte("saga: trip\ndeadlin: 2d\nsteps:\n  a: {acton: b, retry: {attemps: 3}, undo: {recover: hold}}\n  b: {colour: red, If: {value: /input}, no_undo: true}\n"))
	var unknown *UnknownFields
	require.ErrorAs(t, err, &unknown)
	require.ErrorAs(t, err, new(*wire.Invalid))
	var got []string
	for _, f := range unknown.Found {
		got = append(got, fmt.Sprintf("%d %s", places.Of(f.Pointer).Line, f))
	}
	require.Equal(t, []string{
		`2 /deadlin: unknown field "deadlin" (do you mean deadline?)`,
		`4 /steps/0/acton: unknown field "acton" (do you mean action?)`,
		`4 /steps/0/retry/attemps: unknown field "attemps" (do you mean attempts?)`,
		`4 /steps/0/undo/recover: unknown field "recover" (do you mean recovery?)`,
		`5 /steps/1/If: unknown field "If" (do you mean if?)`,
		`5 /steps/1/colour: unknown field "colour" (remove the field or fix its spelling)`,
	}, got)
	require.Empty(t, unknownFields([]byte(`{"saga": "s", "steps": [{"name": "a", "input": {"anything": {"x": 1}}, "if": {"equals": {"y": 2}}}]}`)), "templates and constants have any fields")
}

// The pauses between retries that a definition does not name have the defaults of a job's.
func TestPolicyOf_PausesByDefault(t *testing.T) {
	for text, want := range map[string]flight.RetryPolicy{
		`{"attempts": 8, "max": "1m"}`:      {Attempts: 8, MinBackoff: time.Second, MaxBackoff: time.Minute},
		`{"within": "72h", "max": "5m"}`:    {Attempts: maxAttempts, MinBackoff: time.Second, MaxBackoff: 5 * time.Minute, Within: 72 * time.Hour},
		`{"attempts": 8, "max": "100ms"}`:   {Attempts: 8, MinBackoff: 100 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
		`{"attempts": 8, "first": "2m"}`:    {Attempts: 8, MinBackoff: 2 * time.Minute, MaxBackoff: 2 * time.Minute},
		`{"attempts": 8, "first": "500ms"}`: {Attempts: 8, MinBackoff: 500 * time.Millisecond, MaxBackoff: time.Minute},
	} {
		d, err := Parse([]byte(`{"saga": "s", "steps": [{"name": "a", "undo": {"retry": ` + text + `}}]}`))
		require.NoError(t, err)
		require.Equal(t, want, d.PolicyOf(0, true).Retry, text)
	}
}

// Whatever lint accepts, a worker can read.
func TestLint_AcceptsOnlyPoliciesThatWorkersRead(t *testing.T) {
	for _, field := range []string{"timeout", "settle_delay"} {
		d, err := Parse([]byte(`{"saga": "s", "steps": [{"name": "a", "no_undo": true, "` + field + `": "366d"}]}`))
		require.NoError(t, err)
		require.Empty(t, Lint(d))
		policy := wire.PolicyOf(d.PolicyOf(0, false))
		_, bad := policy.Flight()
		require.Nil(t, bad)
		d.Steps[0].Timeout += Duration(time.Second)
		d.Steps[0].SettleDelay += Duration(time.Second)
		require.NotEmpty(t, Lint(d))
	}
}

func TestCheckRetention(t *testing.T) {
	d, _, err := ParseYAML([]byte(tripYAML))
	require.NoError(t, err)
	require.NoError(t, d.CheckRetention(flight.DefaultRetention))
	require.EqualError(t, d.CheckRetention(48*time.Hour), "48h is shorter than retry.within or provider_window of step voucher, 72h")
	require.EqualError(t, d.CheckRetention(time.Hour), "1h is shorter than retry.within or provider_window of step pay, 24h")
}

// A step under hold without a time-out is allowed, and warned about; gates are not.
func TestWarnings(t *testing.T) {
	d, err := Parse([]byte(`{"saga": "s", "steps": [{"name": "a", "undo": {"timeout": "30s"}}, {"name": "b", "timeout": "30s", "undo": {"action": "free"}},
		{"name": "c", "no_undo": true, "recovery": "resend"}, {"name": "d", "approval": {}}, {"name": "e", "timer": "1h"}]}`))
	require.NoError(t, err)
	require.Empty(t, Lint(d))
	var got []string
	for _, w := range Warnings(d) {
		got = append(got, w.String())
	}
	require.Equal(t, []string{
		"/steps/0: step a: recovery hold without a timeout: while its worker hangs, the saga waits and reports nothing (write a timeout; the document of the action s.a does not count for steps)",
		"/steps/1/undo: step b: its undo: recovery hold without a timeout: while its worker hangs, the saga waits and reports nothing (write a timeout; the document of the action free does not count for steps)",
	}, got)
}
