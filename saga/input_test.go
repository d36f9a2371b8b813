package saga

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestResolve(t *testing.T) {
	d, _, err := ParseYAML([]byte(tripYAML))
	require.NoError(t, err)
	v := viewOf(d, flight.PhaseForward, flights{0: endedAt(1), 1: endedAt(2), 3: endedAt(3)}, nil)
	v.Input = []byte(`{"mail": "a<b@example.org", "cents": 12.50, "big": 9007199254740991, "list": [{"a/b": 1, "m~n": 2}]}`)
	v.Bodies = func(step int) []byte { return []byte([]string{`{"id": 17}`, `{"pnr": "X1"}`, "", `"text"`}[step]) }

	for _, c := range []struct {
		step     int
		undo     bool
		template string
		want     string // or the error
	}{
		{0, false, `{"$from": "/input"}`, `{"big":9007199254740991,"cents":12.50,"list":[{"a/b":1,"m~n":2}],"mail":"a<b@example.org"}`},
		{0, true, `{"room": {"$from": "/steps/hotel/body/id"}}`, `{"room":17}`},
		{3, false, `{"cents": {"$from": "/input/cents"}, "pnr": {"$from": "/steps/seat/body/pnr"}}`, `{"cents":12.50,"pnr":"X1"}`},
		{3, false, `[{"$from": "/input/list/0/a~1b"}, {"$from": "/input/list/0/m~0n"}, 1, null, "x"]`, `[1,2,1,null,"x"]`},
		{3, false, `{"$from": "/steps/manager"}`, `{"body":null,"external_id":null,"outcome":"skipped"}`},
		{3, false, `{"$from": "/steps/manager/body/name"}`, `null`},
		{4, false, ``, `{"input":{"big":9007199254740991,"cents":12.50,"list":[{"a/b":1,"m~n":2}],"mail":"a<b@example.org"},"steps":` +
			`{"hotel":{"body":{"id":17},"external_id":"x","outcome":"succeeded"},"manager":{"body":null,"external_id":null,"outcome":"skipped"},` +
			`"pay":{"body":"text","external_id":"x","outcome":"succeeded"},"seat":{"body":{"pnr":"X1"},"external_id":"x","outcome":"succeeded"}}}`},
		{3, false, `{"$from": "/input/list/1"}`, `/input/list/1: the array has only 1 elements`},
		{3, false, `{"$from": "/input/list/00"}`, `/input/list/00: "00" is no index of an array`},
		{3, false, `{"$from": "/input/mail/x"}`, `/input/mail/x: the value before "x" is no object and no array`},
		{3, false, `{"$from": "/steps/hotel/body/room"}`, `/steps/hotel/body/room: there is no "room"`},
		{3, false, `{"$from": "/steps/pay"}`, `/steps/pay: there is no "pay"`},
		{3, false, `{"$from": "/input/~2"}`, `"/input/~2" is no JSON pointer: write ~0 for ~ and ~1 for /`},
	} {
		if c.undo {
			d.Steps[c.step].Undo.Input = json.RawMessage(c.template)
		} else if d.Steps[c.step].Input = json.RawMessage(c.template); c.template == "" {
			d.Steps[c.step].Input = nil
		}
		got, err := Resolve(d, v, c.step, c.undo)
		if err != nil {
			got = []byte(err.Error())
		}
		require.Equal(t, c.want, string(got), c.template)
	}

	d.Steps[0].Undo.Input = json.RawMessage(`{"room": {"$from": "/steps/hotel/body/id"}, "id": {"$from": "/steps/hotel/external_id"}}`)
	v.Steps[0] = tainted(flight.StateInDoubt)
	got, err := Resolve(d, v, 0, true)
	require.NoError(t, err)
	require.JSONEq(t, `{"room": null, "id": null}`, string(got), "an undo that is safe if the step did not happen")

	v.Steps[0] = endedAt(1)
	v.Steps[0].Receipt.Body = flight.NewBlob("application/json", []byte(strings.Repeat("x", 100)), 10)
	_, err = Resolve(d, v, 0, true)
	require.EqualError(t, err, "/steps/hotel/body/id: only the first 10 bytes of the body are stored; refer to the external_id, or let the step report a shorter body")
	d.Steps[0].Undo.Input = json.RawMessage(`{"$from": "/steps/hotel/external_id"}`)
	got, err = Resolve(d, v, 0, true)
	require.NoError(t, err)
	require.Equal(t, `"x"`, string(got))

	v.Input = []byte(`{"x": "` + strings.Repeat("x", MaxResolvedInput) + `"}`)
	d.Steps[0].Input = nil
	_, err = Resolve(d, v, 0, false)
	require.ErrorContains(t, err, "at most 1048576 are allowed")
}

func TestCheckInput(t *testing.T) {
	d, _, err := ParseYAML([]byte(tripYAML))
	require.NoError(t, err)
	require.NoError(t, d.CheckInput([]byte(`{"cents": 5, "mail": "x"}`)))
	require.EqualError(t, d.CheckInput([]byte(`{"mail": "x"}`)), `step manager: /input/cents: there is no "cents"`)
	require.EqualError(t, d.CheckInput([]byte(`{"cents": 5}`)), `step voucher: /input/mail: there is no "mail"`, "found before the pivot has passed")
	d.Steps[0].Undo.Input = json.RawMessage(`{"$from": "/input/why"}`)
	require.EqualError(t, d.CheckInput([]byte(`{"cents": 5, "mail": "x"}`)), `step hotel: /input/why: there is no "why"`)
	require.ErrorContains(t, d.CheckInput(nil), "/input is null, or was not given")
	require.ErrorContains(t, d.CheckInput([]byte(`cents`)), "the input of the saga is not JSON")
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		value, condition string
		want             string
	}{
		{`100000`, `{"above": 100000}`, "false"}, {`100000.01`, `{"above": 100000}`, "true"}, {`1e5`, `{"equals": 100000}`, "true"},
		{`9007199254740993`, `{"above": 9007199254740992}`, "true"}, {`0.1`, `{"below": 0.10000000000000000001}`, "true"},
		{`-2`, `{"below": -1.5}`, "true"}, {`-2`, `{"above": 0}`, "false"}, {`-0`, `{"equals": 0.0}`, "true"}, {`1e400`, `{"above": 1e399}`, "true"},
		{`12`, `{"below": 9}`, "false"}, {`0.09`, `{"below": 0.1}`, "true"}, {`-0.09`, `{"above": -0.1}`, "true"},
		{`"a"`, `{"equals": "a"}`, "true"}, {`"a"`, `{"equals": "b"}`, "false"}, {`"1"`, `{"equals": 1}`, "false"}, {`true`, `{"equals": true}`, "true"},
		{`null`, `{"equals": null}`, "true"}, {`null`, `{"not_equals": null}`, "false"}, {`{}`, `{"not_equals": 1}`, "true"}, {`[1]`, `{"equals": 1}`, "false"},
		{`"5"`, `{"above": 1}`, "/input is not a number"},
	} {
		condition := Condition{Value: "/input"}
		require.NoError(t, json.Unmarshal([]byte(c.condition), &condition))
		value, err := decode([]byte(c.value))
		require.NoError(t, err)
		holds, err := condition.compare(value)
		got := "false"
		if err != nil {
			got = err.Error()
		} else if holds {
			got = "true"
		}
		require.Equal(t, c.want, got, "%s %s", c.value, c.condition)
	}
}

// Workers in three languages read the input of a step as they read the input of a job, so it must pass the same checks.
func TestResolve_ChecksTheInputOfAStep(t *testing.T) {
	d := &Definition{Saga: "trip", Version: 1, Steps: []Step{{Name: "hotel"}, {Name: "pay", Needs: []string{"hotel"}}}}
	for body, want := range map[string]string{
		`{"id": 1729384756102938475}`:                                            "/steps/hotel/body/id",
		`{"id": ` + strings.Repeat("9", 5000) + `}`:                              "/steps/hotel/body/id",
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000):                    "nested deeper than 128 levels",
		`{"text": "\ufdd0"}`:                                                     "noncharacter",
		`{"id": "1729384756102938475", "cents": 12.50, "big": 9007199254740991}`: "",
	} {
		v := viewOf(d, flight.PhaseForward, flights{0: endedAt(1)}, nil)
		v.Bodies = func(int) []byte { return []byte(body) }
		got, err := Resolve(d, v, 1, false)
		if want == "" {
			require.NoError(t, err)
			require.Contains(t, string(got), "12.50", "numbers stay as they were written")
			continue
		}
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "the input of step pay")
	}
}
