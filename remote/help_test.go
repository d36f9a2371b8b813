package remote_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/remote"
)

// bubble runs a test with its own node in virtual time.
func bubble(t *testing.T, run func(t *testing.T, fd *flightdtest.Flightd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, flightdtest.New(t)) })
}

// withTwoNodes runs a test with two nodes over one ledger and one etcd. The first node uses the ledger through a.
func withTwoNodes(t *testing.T, run func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd)) {
	t.Helper()
	bubble(t, func(t *testing.T, there *flightdtest.Flightd) {
		a := &faultyLedger{Follower: there.Ledger.Follower()}
		run(t, a, there.Restart(t, flightdtest.Options{Follower: a.Follower, ConfigureRemote: a.configure}), there)
	})
}

func keyOf(id string) flight.Key { return flight.MustKey("billing/charge/" + id) }

// submissionOf returns a submission with a JSON input.
func submissionOf(input string, p flight.Policy) flight.Submission {
	fp, err := flight.FingerprintJSON([]byte(input), nil)
	if err != nil {
		panic(err)
	}
	return flight.Submission{Fingerprint: fp, Input: flight.NewBlob("application/json", []byte(input), flight.MaxInput), Policy: p}
}

func openOf(id, input string, p flight.Policy, nonce byte) remote.OpenRequest {
	return remote.OpenRequest{Key: keyOf(id), Submission: submissionOf(input, p), Nonce: flight.Nonce{nonce}, Owner: "caller"}
}

func reportOf(a remote.OpenAnswer, o flight.Outcome, id string) remote.ReportRequest {
	return remote.ReportRequest{ID: a.Flight.ID, Key: a.Flight.Key, FencingToken: a.FencingToken, Outcome: o, ExternalID: id,
		Body: flight.NewBlob("", []byte(id), flight.MaxReceiptBody)}
}

func abandonOf(fd *flightdtest.Flightd, req remote.OpenRequest) remote.AbandonRequest {
	return remote.AbandonRequest{Key: req.Key, Nonce: req.Nonce, NotAfter: fd.Ledger.Now().Add(30 * time.Second)}
}

// proceed opens and requires the answer proceed.
func proceed(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) remote.OpenAnswer {
	t.Helper()
	a, err := fd.Remote().Open(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, flight.DecisionProceed, a.Decision)
	require.Positive(t, a.Trust)
	require.NotEmpty(t, a.FencingToken)
	require.Equal(t, req.Nonce, a.Flight.OpenAttempt().Nonce)
	return a
}

// report reports an outcome and returns the flight.
func report(t *testing.T, fd *flightdtest.Flightd, a remote.OpenAnswer, o flight.Outcome, id string) *flight.Flight {
	t.Helper()
	f, err := fd.Remote().Report(t.Context(), reportOf(a, o, id))
	require.NoError(t, err)
	return f
}

func session(t *testing.T, fd *flightdtest.Flightd) flight.SessionID {
	t.Helper()
	return sessionOf(t, fd, 0)
}

func sessionOf(t *testing.T, fd *flightdtest.Flightd, ttl time.Duration) flight.SessionID {
	t.Helper()
	s, err := fd.Remote().NewSession(t.Context(), ttl, "caller")
	require.NoError(t, err)
	require.Positive(t, s.Trust)
	return s.Session
}

// renew renews a session through one node for the duration d.
func renew(t *testing.T, fd *flightdtest.Flightd, id flight.SessionID, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); sleep(t, 4*time.Second) {
		_, err := fd.Remote().Renew(t.Context(), id, remote.RenewRequest{})
		require.NoError(t, err)
	}
}

// keepRenewed renews a session in the background, until stop is called.
func keepRenewed(t *testing.T, fd *flightdtest.Flightd, id flight.SessionID) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, _ = fd.Remote().Renew(ctx, id, remote.RenewRequest{})
			select {
			case <-time.After(4 * time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-done }
}

// claimsOf returns the number of claims in etcd after pending releases.
func claimsOf(t *testing.T, fd *flightdtest.Flightd) int {
	t.Helper()
	waitForReleases(t)
	claims, err := fd.Leases.Claims(t.Context())
	require.NoError(t, err)
	return len(claims)
}

// waitForReleases waits until releases are done: the lessor delays them shortly to batch them.
func waitForReleases(t *testing.T) {
	t.Helper()
	sleep(t, 100*time.Millisecond)
	synctest.Wait()
}

// sleep waits for a virtual duration.
func sleep(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// requireAs is errors.As with the error in the message.
func requireAs[E error](t *testing.T, err error) E {
	t.Helper()
	var as E
	require.ErrorAs(t, err, &as)
	return as
}

var recoveries = [...]flight.Recovery{flight.RecoveryHold, flight.RecoveryResend, flight.RecoveryVerify}
