package client_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func echo(_ context.Context, _ client.Attempt, in int) (int, error) { return in, nil }

// The worker's policy becomes the document of the action, also if the first answers are lost, and jobs without a policy have it.
func TestWorker_DeclaresItsPolicy(t *testing.T) {
	g := newFixture(t)
	c := g.connect(client.WithRetryTimeout(50 * time.Millisecond))
	lost := 0
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, "/declare") && lost < 5 {
			lost++
			return cutAfter
		}
		return none
	})
	w := c.Worker()
	client.Work(w, "charge", echo, client.Resend(24*time.Hour), client.Retry{Attempts: 3}, client.Timeout(30*time.Second), client.LaneBy("/customer", 2))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var declared *client.Action
	for declared == nil {
		declared, _ = c.Action(t.Context(), "charge")
	}
	require.Equal(t, client.Policy{Recovery: "resend", ProviderWindowMS: 86_400_000, AttemptTimeoutMS: 30_000}, declared.Policy)
	require.EqualValues(t, 3, declared.Retry.Attempts)
	require.Equal(t, "/customer", declared.Lane.By)
	job, err := c.Submit(t.Context(), client.Key("charge", "1"), map[string]int{"customer": 7})
	require.NoError(t, err)
	f := g.flight(job.Key)
	require.Equal(t, flight.RecoveryResend, f.Policy.Recovery)
	require.Equal(t, "7", f.Place.Queue.Lane)
	stop()
	require.NoError(t, <-ended)
}

// A policy that differs in what decides about a second effect is an error of Run, before anything was claimed. Other differences are
// logged once, and the document counts.
func TestWorker_PolicyDiffers(t *testing.T) {
	g := newFixture(t)
	var log bytes.Buffer
	c := g.connect(client.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	_, err := c.PutAction(t.Context(), "charge", client.ActionRequest{ActionPolicy: client.ActionPolicy{Policy: client.Policy{Recovery: "resend", ProviderWindowMS: 1000}}, Reason: "r"})
	require.NoError(t, err)
	key := g.submit(c, "1")
	wrong := c.Worker()
	client.Work(wrong, "charge", echo, client.Resend(24*time.Hour), client.LaneBy("/customer", 0))
	var differs *client.PolicyDiffers
	require.ErrorAs(t, wrong.Run(t.Context()), &differs)
	require.EqualError(t, differs, "client: the worker's policy of the action charge differs from its document: provider_window is 24h here, and 1s in the document; "+
		"lane.by is /customer here, and not set in the document; change the worker, or the document with flightd actions apply")
	require.Nil(t, g.flight(key).Newest(), "nothing was claimed")

	right := c.Worker()
	client.Work(right, "charge", echo, client.Resend(time.Second), client.Retry{Attempts: 3})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- right.Run(ctx) }()
	_, err = client.Wait[int](t.Context(), c, key)
	require.NoError(t, err)
	_, err = client.Wait[int](t.Context(), c, g.submit(c, "2"))
	require.NoError(t, err)
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, 8, g.flight(key).Policy.Retry.Attempts, "the document counts")
	require.Equal(t, 1, strings.Count(log.String(), "retry.attempts"), log.String())
}

// An option of one job in a worker's policy is rejected before anything is sent, as is LaneBy in a submission.
func TestWorker_WrongOptions(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	w := c.Worker()
	client.Work(w, "charge", echo, client.Lane("c7"))
	var invalid *flight.InvalidError
	require.ErrorAs(t, w.Run(t.Context()), &invalid)
	_, err := c.Submit(t.Context(), client.Key("charge", "1"), 1, client.LaneBy("/customer", 1))
	require.ErrorAs(t, err, &invalid)
	w = c.Worker()
	client.Work(w, "charge", echo, client.LaneBy("customer", 1))
	require.ErrorContains(t, w.Run(t.Context()), "/lane/by: must be a JSON pointer")
}

// A wait that ends while a job awaits its approval names the approval as the reason.
func TestWait_Unapproved(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	key := client.Key("charge", "1")
	_, err := c.Submit(t.Context(), key, 1, client.Approval(time.Hour))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = client.Wait[int](ctx, c, flight.MustKey("default/charge/1"))
	require.ErrorAs(t, err, new(*client.Unapproved))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A document with a field of a later version is an error: a caller that writes the document back would remove the field.
func TestAction_UnknownField(t *testing.T) {
	for body, bad := range map[string]string{
		`{"name":"refund","recovery":"hold","version":"1","changed_at":"2026-01-01T00:00:00Z"}`:                              "",
		`{"name":"refund","recovery":"hold","quorum":2,"version":"1","changed_at":"2026-01-01T00:00:00Z"}`:                   "/quorum: unknown field; upgrade this program",
		`{"name":"refund","approval":{"expires_ms":1,"other":true},"version":"1","changed_at":"2026-01-01T00:00:00Z"}`:       "/approval/other: unknown field",
		`{"name":"refund","lane":{"by":"/c","limit":1,"weight":3},"version":"1","changed_at":"2026-01-01T00:00:00.000001Z"}`: "/lane/weight: unknown field",
	} {
		g := newFixture(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !hasSuffix(r, "/v1/actions/refund") {
				g.server.Config.Handler.ServeHTTP(w, r)
				return
			}
			w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(server.Close)
		c, err := client.Connect(t.Context(), server.URL, client.WithSpool(t.TempDir()))
		require.NoError(t, err)
		_, err = c.Action(t.Context(), "refund")
		require.NoError(t, c.Close(t.Context()))
		if bad == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, bad)
		}
	}
}
