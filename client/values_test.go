package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

type panicking struct{ ID string }

func (p *panicking) ExternalID() string         { return p.ID }
func (*panicking) MarshalJSON() ([]byte, error) { panic("no JSON today") }

// withoutJSON has an external id and a number that JSON cannot hold.
type withoutJSON struct {
	ID    string
	Ratio float64
}

func (w withoutJSON) ExternalID() string { return w.ID }

// lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A handler that succeeds is a success with any value: the caller that acted keeps the value, and the others get the reason why
// they cannot have it.
func TestResultsThatCannotBeWritten(t *testing.T) {
	g, log := newFixture(t), new(lines)
	c := g.connect(client.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	for name, row := range map[string]struct {
		value    any
		external string
		whole    bool // the receipt has the whole value
	}{
		"nil":     {value: (*panicking)(nil), whole: true},
		"panic":   {value: &panicking{"ch_1"}, external: "ch_1"},
		"NaN":     {value: withoutJSON{"ch_2", math.NaN()}, external: "ch_2"},
		"UTF-8":   {value: "\xff"},
		"channel": {value: make(chan int)},
	} {
		act := func(context.Context, client.Attempt) (any, error) { return row.value, nil }
		own, err := client.Do(t.Context(), c, client.Key("odd", name), nil, act)
		require.NoError(t, err, name)
		if name != "NaN" {
			require.Equal(t, row.value, own)
		}
		f := g.flight(flight.MustKey("default/odd/" + name))
		require.Equal(t, flight.StateSucceeded, f.State, name)
		require.Equal(t, row.external, f.Receipt.ExternalID, name)
		require.Len(t, f.Attempts, 1, name)
		_, err = client.Do(t.Context(), c, client.Key("odd", name), nil, act)
		if row.whole {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorAs(t, err, new(*client.ReceiptTruncated), name)
		require.ErrorContains(t, err, "could not write the whole result as JSON", name)
		require.Contains(t, log.String(), "default/odd/"+name)
	}
}

// The client that acted logs at the report that the ledger keeps only the beginning.
func TestLongReceiptIsReportedToTheOneWhoActed(t *testing.T) {
	g, log := newFixture(t), new(lines)
	c := g.connect(client.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	long := func(context.Context, client.Attempt) (string, error) { return strings.Repeat("y", 100_000), nil }
	text, err := client.Do(t.Context(), c, client.Key("odd", "long"), nil, long)
	require.NoError(t, err)
	require.Len(t, text, 100_000, "the caller that acted has the whole result")
	require.Contains(t, log.String(), "it has 100002 bytes, and 65536 are stored")
	_, err = client.Do(t.Context(), c, client.Key("odd", "long"), nil, long)
	var short *client.ReceiptTruncated
	require.ErrorAs(t, err, &short)
	require.Equal(t, 100_002, short.Result.Size)
	require.Len(t, short.Result.Answer.Body, flight.MaxReceiptBody)
	require.False(t, short.Result.Digest.IsZero())
}

// A receipt is read exactly, or not at all.
func TestReceiptsAreReadExactly(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	for name, row := range map[string]struct {
		kind, body string
		want       any // nil: an error
	}{
		"long":   {"application/json", `{"id":7615917337495251231}`, map[string]any{"id": json.Number("7615917337495251231")}},
		"huge":   {"application/json", `[1e400]`, []any{json.Number("1e400")}},
		"short":  {"application/json", `{"id":1.5}`, map[string]any{"id": 1.5}},
		"latin1": {"application/json; charset=iso-8859-1", "{\"name\":\"\xe9\"}", nil},
	} {
		key := flight.MustKey("default/exact/" + name)
		_, err := c.Do(t.Context(), effect.Call{Key: key, Submission: flight.Submission{Fingerprint: flight.FingerprintBytes(nil)}},
			func(context.Context, *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{ContentType: row.kind, Body: []byte(row.body)}, nil
			})
		require.NoError(t, err)
		receipt, err := c.Receipt(t.Context(), key.FlightID())
		require.NoError(t, err)
		require.Equal(t, row.body, string(receipt.Data), name)
		got, err := client.Do(t.Context(), c, client.Key("exact", name), nil, func(context.Context, client.Attempt) (any, error) { return nil, nil })
		if row.want == nil {
			require.ErrorAs(t, err, new(*client.ReceiptUnreadable), name)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, row.want, got, name)
	}
}
