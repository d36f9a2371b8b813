package linear

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// op is an operation on a flight that has one attempt and succeeds, with its answer and changes.
func op(client, kind string, more ...any) (o Op) {
	o = Op{Client: client, Kind: kind, Key: "default/linear/a", Generation: 1, Attempt: 1, Digest: "d1", Word: "succeeded", Version: "30.0"}
	for _, m := range more {
		switch m := m.(type) {
		case Record:
			o.Answer = &m
		case func(*Op):
			m(&o)
		}
	}
	return o
}

func TestCheck_DamagedHistories(t *testing.T) {
	record := func(version, state string, generation, attempt uint32) Record {
		return Record{State: state, Version: version, Generation: generation, Attempt: attempt}
	}
	succeededAt := func(version, digest string, bytes bool) Record {
		return Record{State: "succeeded", Version: version, Generation: 1, Attempt: 1, Outcome: "succeeded", Digest: digest, Bytes: bytes, Redacted: !bytes}
	}
	open, open2 := op("me", Open, record("", "running", 1, 1)), op("me", Open, record("", "running", 2, 2))
	done, freed, unused := succeededAt("30.0", "d1", true), record("50.0", "absent", 2, 0), record("", "absent", 0, 0)
	notDone, cancelled, retried := record("31.0", "ready", 1, 1), record("32.0", "cancelled", 1, 1), record("50.0", "ready", 2, 0)
	doubt, resolved, redacted := record("20.0", "in_doubt", 1, 1), succeededAt("31.0", "d2", true), succeededAt("40.0", "d1", false)
	report, resolve := op("me", Report, done), op("me", Resolve, resolved, func(o *Op) { o.Version, o.Word, o.Digest = "20.0", "happened", "d2" })
	ended := []Op{open, op("me", Report, notDone, func(o *Op) { o.Word, o.Digest = "not_done", "" }), op("me", Cancel, cancelled)}
	stale, unknown := func(o *Op) { o.Stale = true }, func(o *Op) { o.Unknown, o.Answer = true, nil }
	answered := func(code string) func(*Op) { return func(o *Op) { o.Code, o.End = code, 35 } } // after the next operations
	refused := func(o *Op) { o.Code, o.Answer = "precondition_failed", nil }
	event := func(version string) Op { return op("default/linear/", Event, func(o *Op) { o.Version = version }) }
	with := func(o Op, changes ...func(*Op)) Op {
		for _, change := range changes {
			change(&o)
		}
		return o
	}
	for name, c := range map[string]struct {
		rule    string // "": clean
		history []Op
	}{
		"a whole life":                       {"", []Op{open, report, op("me", Read, done), op("me", Redact, redacted), op("me", Free, freed), op("me", Read, freed), open2}},
		"a session ends unseen":              {"", []Op{open, op("me", Read, doubt), resolve}},
		"a report without an answer arrives": {"", []Op{open, with(report, unknown), op("me", Read, doubt), op("me", Read, done)}},
		"a free without an answer is lost":   {"", []Op{open, report, op("me", Free, unknown), op("me", Read, done)}},
		"a refused free had been done":       {"", []Op{open, report, op("me", Free, refused), op("me", Read, freed)}},
		"a node behind answers another":      {"", []Op{open, report, op("me", Free, freed), op("you", Read, done, stale)}},
		"a resolve is refused":               {"", []Op{open, op("me", Read, doubt), report, with(resolve, refused), op("me", Read, done)}},
		"two people free one generation":     {"", []Op{open, report, op("me", Free, freed), op("you", Free, freed), op("me", Read, freed)}},
		"two people retry one generation":    {"", append(slices.Clip(ended), op("me", Retry, retried), op("you", Retry, retried), op("me", Read, retried))},
		"a free after a retry is refused":    {"", append(slices.Clip(ended), op("me", Retry, retried), op("you", Free, refused), op("me", Read, retried))},
		"the repeat of an open is a replay":  {"", []Op{op("me", Open, answered("replay")), op("you", Read, record("10.0", "running", 1, 1)), op("you", Read, doubt), with(resolve), op("you", Read, resolved)}},
		"the repeat of an open is in doubt":  {"", []Op{op("me", Open, answered("in_doubt")), op("you", Read, record("10.0", "running", 1, 1)), op("you", Read, doubt)}},
		"a stream repeats events":            {"", []Op{open, report, event("10.0"), event("30.0"), event("10.0"), event("30.0"), event("50.0")}},
		"a stream selects other keys":        {"", []Op{open, report, op("other/", Event, func(o *Op) { o.Version = "10.0" }), op("other/", Event, func(o *Op) { o.Version = "50.0" })}},
		"a stream has a gap":                 {"", []Op{open, report, event("10.0"), op("default/linear/", Gap), event("50.0")}},

		"another receipt":                       {ReceiptChanged, []Op{open, report, op("you", Read, succeededAt("35.0", "d9", true))}},
		"a read of the past":                    {ReadWentBack, []Op{open, report, op("you", Read, record("10.0", "running", 1, 1))}},
		"a doubt about nothing":                 {AckedIsAbsent, []Op{op("me", Open, func(o *Op) { o.Code = "in_doubt" }), op("you", Read, unused)}},
		"a replay opens nothing later":          {TwoGenerations, []Op{op("me", Open, func(o *Op) { o.Code = "replay" }), op("you", Read, record("60.0", "running", 2, 2))}},
		"a flight is gone":                      {AckedIsAbsent, []Op{open, report, op("you", Read, unused)}},
		"a freed key was never used":            {AckedIsAbsent, []Op{open, report, op("me", Free, freed), op("you", Read, unused)}},
		"a free does nothing":                   {NoEffect, []Op{open, report, op("me", Free, freed), op("you", Read, succeededAt("60.0", "d1", true))}},
		"the answer to a free shows no effect":  {NoEffect, []Op{open, report, op("me", Free, done)}},
		"a free after a retry":                  {DecisionAllowed, append(slices.Clip(ended), op("me", Retry, retried), op("you", Free, retried), op("me", Read, retried))},
		"a generation that nobody began":        {TwoGenerations, []Op{open, report, op("you", Read, record("60.0", "running", 2, 2))}},
		"one free, two generations":             {TwoGenerations, []Op{open, report, op("me", Free, freed), op("you", Open, record("", "running", 3, 2))}},
		"bytes after a redaction":               {BytesCameBack, []Op{open, report, op("me", Redact, redacted), op("you", Read, succeededAt("45.0", "d1", true))}},
		"a resolve after the report":            {ResolveLost, []Op{open, op("me", Read, doubt), report, resolve}},
		"a report after the resolve":            {ReportLost, []Op{open, op("me", Read, doubt), resolve, op("you", Report, resolved)}},
		"an effect after the receipt":           {ActedTwice, []Op{open, report, op("you", Open, record("", "running", 1, 2))}},
		"one attempt, two callers":              {ActedTwice, []Op{open, with(open, func(o *Op) { o.Client = "you" })}},
		"a number is skipped":                   {NumberWrong, []Op{op("me", Open, record("", "running", 1, 2))}},
		"a running flight is freed":             {DecisionAllowed, []Op{open, op("me", Free, freed)}},
		"a receipt that nobody reported":        {NoOrder, []Op{open, op("me", Read, done)}},
		"a reader goes from new to old":         {VersionFell, []Op{open, report, op("you", Read, redacted, stale), op("you", Read, done, stale)}},
		"a client does not see its free":        {OwnWriteMissing, []Op{open, report, op("me", Free, freed), op("me", Read, done, stale)}},
		"a list is older than a read before it": {VersionFell, []Op{open, op("you", Read, doubt), op("you", List, record("10.0", "running", 1, 1))}},
		"two nodes differ about one version":    {TwoRecords, []Op{open, report, op("you", Read, succeededAt("30.0", "d9", true), stale)}},
		"a stream goes back":                    {StreamWentBack, []Op{open, report, event("10.0"), event("30.0"), event("20.0")}},
		"a stream leaves the report out":        {StreamMissed, []Op{open, report, event("10.0"), event("50.0")}},
	} {
		t.Run(name, func(t *testing.T) {
			var read []Op
			for i, o := range c.history {
				o.Start, o.End = int64(i*10+1), o.End+int64(i*10+9)
				line, err := json.Marshal(o)
				require.NoError(t, err)
				read = append(read, Op{})
				require.NoError(t, json.Unmarshal(line, &read[i]))
			}
			found := make(map[string]bool)
			for _, v := range Check(read) {
				found[v.Rule] = true
				require.Contains(t, v.String(), `"Kind":`)
			}
			require.Equal(t, c.rule != "", len(found) > 0, found)
			require.True(t, c.rule == "" || found[c.rule], found)
		})
	}
}
