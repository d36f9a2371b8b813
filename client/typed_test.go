package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

type invoice struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

type message struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

func (m message) ExternalID() string { return m.ID }

func TestTypedDo(t *testing.T) {
	g := newFixture(t)
	c := g.connect(client.WithNamespace("billing"))
	send := func(ctx context.Context, at client.Attempt) (message, error) {
		return message{ID: "m1", Text: at.Key().String()}, nil
	}
	for range 2 {
		msg, err := client.Do(t.Context(), c, client.Key("send-invoice", "7"), invoice{"7", 100}, send)
		require.NoError(t, err)
		require.Equal(t, message{"m1", "billing/send-invoice/7"}, msg)
	}
	_, err := client.Do(t.Context(), c, client.Key("send-invoice", "7"), invoice{"7", 101}, send)
	var conflict *client.Conflict
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []string{"/amount"}, conflict.Fields)
	_, err = client.Do(t.Context(), c, client.Key("send-invoice", "7"), invoice{"7", 102}, send, client.KeyDecides())
	require.NoError(t, err)
	f := g.flight(flight.MustKey("billing/send-invoice/7"))
	require.Equal(t, "m1", f.Receipt.ExternalID)
	_, err = client.Do(t.Context(), c, client.Key("a/b", "7"), 1, send)
	var invalid *flight.InvalidError
	require.ErrorAs(t, err, &invalid)
}

// The single requests that tools are made of.
func TestSingleRequests(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	ctx := t.Context()
	wait := int64(0)
	open, err := c.Open(ctx, key, client.OpenRequest{Input: []byte(`{"a": 1}`), WaitMS: &wait})
	require.NoError(t, err)
	require.Equal(t, "proceed", open.Decision)
	require.False(t, open.SentAt.IsZero())
	_, err = c.Open(ctx, key, client.OpenRequest{Input: []byte(`{"a":1}`), WaitMS: &wait})
	var busy *client.Busy
	require.ErrorAs(t, err, &busy)

	f, err := c.Flight(ctx, key.FlightID())
	require.NoError(t, err)
	same, err := c.WaitFlight(ctx, key.FlightID(), f.Version, 0)
	require.NoError(t, err)
	require.Equal(t, f.Version, same.Version)
	changed, seen := make(chan *client.Flight, 1), f.Version
	go func() {
		next, err := c.WaitFlight(ctx, key.FlightID(), seen, 20*time.Second)
		if err != nil {
			t.Error(err)
		}
		changed <- next
	}()
	r := client.ReportRequest{FencingToken: open.FencingToken, Outcome: "succeeded"}
	r.ExternalID, r.JSON = "é\n1", []byte(`{"b": [1,  2]}`)
	f, err = c.Report(ctx, key, r)
	require.NoError(t, err)
	require.Equal(t, "succeeded", f.State)
	require.Equal(t, f.Version, (<-changed).Version)

	receipt, err := c.Receipt(ctx, key.FlightID())
	require.NoError(t, err)
	require.Equal(t, `{"b": [1,  2]}`, string(receipt.Data))
	require.Equal(t, "é\n1", receipt.ExternalID)
	require.Equal(t, "succeeded", receipt.Outcome)
	page, err := c.List(ctx, client.Query{States: []string{"succeeded"}, Action: "charge", KeyPrefix: "default/", Since: time.Hour, Limit: 1})
	require.NoError(t, err)
	require.Len(t, page.Flights, 1)
	history, err := c.History(ctx, key.FlightID())
	require.NoError(t, err)
	require.Equal(t, "submitted", history.Events[0].Kind)
	freed, err := c.Free(ctx, key.FlightID(), f.Version, client.OperatorRequest{Reason: "again"})
	require.NoError(t, err)
	require.Equal(t, "absent", freed.State)
	_, err = c.Flight(ctx, key.FlightID())
	var missing *client.Missing
	require.ErrorAs(t, err, &missing)
	ready, err := c.Ready(ctx)
	require.NoError(t, err)
	require.True(t, ready.Ready)
	g.setFault(func(r *http.Request) fault { return refused })
	_, err = c.Ready(ctx)
	require.NoError(t, err, "an answer all the same")
	version, err := g.connectVersion(c)
	require.Error(t, err)
	require.Nil(t, version)
}

func (fi *fixture) connectVersion(c *client.Client) (*client.Version, error) {
	ctx, cancel := context.WithCancel(fi.t.Context())
	cancel()
	return c.Version(ctx)
}

// A client lists the flights of its own namespace, and those of all namespaces on request.
func TestListsOfAllNamespaces(t *testing.T) {
	g := newFixture(t)
	for _, key := range []string{"default/charge/1", "billing/charge/1"} {
		g.fake.Apply(t, &flight.Submit{Key: flight.MustKey(key)})
	}
	for _, c := range []*client.Client{g.connect(), g.connect(client.WithNamespace("billing"))} {
		for all, want := range map[bool]int{false: 1, true: 2} {
			flights, err := c.List(t.Context(), client.Query{AllNamespaces: all})
			require.NoError(t, err)
			require.Len(t, flights.Flights, want)
			events, err := c.EventPage(t.Context(), client.EventQuery{AllNamespaces: all}, 0)
			require.NoError(t, err)
			require.Len(t, events.Events, want)
			streamed := 0
			ctx, cancel := context.WithCancel(t.Context())
			for e, err := range c.Events(ctx, client.EventQuery{AllNamespaces: all, Last: 10}) {
				if err != nil {
					break
				}
				require.NotEmpty(t, e.Key)
				if streamed++; streamed == want {
					cancel()
				}
			}
			cancel()
			require.Equal(t, want, streamed)
		}
		own, err := c.List(t.Context(), client.Query{KeyPrefix: c.Namespace() + "/"})
		require.NoError(t, err)
		require.Equal(t, c.Namespace()+"/charge/1", own.Flights[0].Key)
	}
}

// A person may resolve a doubt without the result. Callers get the error of a receipt that is not stored whole, with the
// external id if there is one.
func TestTypedDo_ResolvedWithoutTheResult(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	for id, resolution := range map[string]client.ResolveRequest{
		"none":     {Result: "happened", Reason: "seen", NoReceipt: true},
		"external": {Result: "happened", Reason: "seen", Body: wire.Body{ExternalID: "ch_1"}},
	} {
		send := func() error {
			_, err := client.Do(t.Context(), c, client.Key("charge", id), nil, func(context.Context, client.Attempt) (string, error) { return "", errors.New("connection lost") })
			return err
		}
		var doubt *client.InDoubt
		require.ErrorAs(t, send(), &doubt)
		_, err := c.Resolve(t.Context(), doubt.Key.FlightID(), doubt.Version.String(), client.ResolveRequest{Result: "happened", Reason: "seen"})
		require.Equal(t, wire.InputInvalid, client.CodeOf(err), "%v", err)
		_, err = c.Resolve(t.Context(), doubt.Key.FlightID(), doubt.Version.String(), resolution)
		require.NoError(t, err)
		var short *client.ReceiptTruncated
		require.ErrorAs(t, send(), &short)
		require.ErrorContains(t, short, "a person resolved it")
		require.Equal(t, resolution.ExternalID, short.Result.Answer.ExternalID)
		require.Empty(t, short.Result.Answer.Body)
	}
}
