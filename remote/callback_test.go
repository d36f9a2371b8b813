package remote_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// TestCallback_CrashSites kills the node during the suspend, or during the callback. Caller and provider repeat what was not
// answered at another node. The caller's session ends between the two. The points before-report and later are those of the
// callback; before-release is passed by the suspend first.
func TestCallback_CrashSites(t *testing.T) {
	for _, site := range []string{"before-suspend", "after-suspend", "before-report", "after-report", "before-release"} {
		t.Run(site, func(t *testing.T) {
			var transcript strings.Builder
			for _, recovery := range recoveries {
				synctest.Test(t, func(t *testing.T) {
					fmt.Fprintf(&transcript, "# %s\n%s\n", recovery, runCallbackCrash(t, site, recovery))
				})
			}
			executortest.RequireGolden(t, "callback-"+site, transcript.String(), *update)
		})
	}
}

func runCallbackCrash(t *testing.T, site string, recovery flight.Recovery) string {
	w := newCluster(t)
	p := &provider{Say: w.transcript.Add, Honours: recovery == flight.RecoveryResend}
	at := w.node("a", site)
	c := w.caller("caller", at, p, recovery)
	c.req.Callback, c.req.PublicURL = true, "https://flightd.test"
	alive, leave := context.WithCancel(t.Context())
	c.keepSession(alive)
	answer, err := at.Open(alive, c.req)
	require.NoError(t, err)
	header := w.ledger.Header()
	sealed, found := strings.CutPrefix(answer.CallbackURL, "https://flightd.test"+remote.CallbackPath)
	require.True(t, found)
	token, ok := flight.UnsealCallback(sealed, header.Secret)
	require.True(t, ok)
	made := p.Act(answer.IdempotencyKey)

	repeat := func(name string, request func(ctx context.Context, n *node) (*flight.Flight, error)) {
		for {
			bounded, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			done := make(chan error, 1)
			n := at
			go func() {
				f, err := request(bounded, n)
				if err == nil {
					w.transcript.Add("%s answered: %v", name, f.State)
				}
				done <- err
			}()
			select {
			case err := <-done:
				cancel()
				require.NoError(t, err)
				return
			case <-bounded.Done():
				cancel()
				w.transcript.Add("%s: no answer, again", name)
				at = w.node("b", "")
				c.at.Store(at)
			}
		}
	}
	repeat("suspend", func(ctx context.Context, n *node) (*flight.Flight, error) {
		return n.Suspend(ctx, remote.SuspendRequest{ID: answer.Flight.ID, Key: answer.Flight.Key, FencingToken: answer.FencingToken, Until: w.ledger.Now().Add(time.Hour)})
	})
	leave()
	<-c.renewed
	sleep(t, time.Minute)
	claims, err := at.leases.Claims(t.Context())
	require.NoError(t, err)
	require.Empty(t, claims)
	repeat("callback", func(ctx context.Context, n *node) (*flight.Flight, error) {
		return n.Callback(ctx, remote.CallbackRequest{Token: token, Outcome: flight.OutcomeSucceeded, ExternalID: made, Body: flight.NewBlob("", []byte(made), flight.MaxReceiptBody)})
	})
	require.Contains(t, w.transcript.String(), "a: dies "+site)
	requireOneEffect(t, w, p, c.req.Key)
	waitForReleases(t)
	return w.transcript.String()
}
