package main

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// copyWorld is a server whose namespace dev holds three receipts, two keys without one, and a tombstone.
func copyWorld(t *testing.T) (*httpapitest.Fake, func(namespace string, verbs auth.Verbs) map[string]string) {
	t.Helper()
	world := httpapitest.New(t)
	open := func(key string) remote.OpenAnswer {
		a, err := world.Remote().Open(t.Context(), remote.OpenRequest{Key: flight.MustKey(key), Nonce: flight.Nonce{byte(len(key)), key[len(key)-1]}, Owner: "host:1",
			Submission: flight.Submission{Fingerprint: flight.Fingerprint{1}}})
		require.NoError(t, err)
		return a
	}
	report := func(key string, o flight.Outcome, body flight.Blob) {
		a := open(key)
		_, err := world.Remote().Report(t.Context(), remote.ReportRequest{ID: a.Flight.ID, Key: a.Flight.Key, FencingToken: a.FencingToken, Outcome: o, ExternalID: "ch_" + key, Body: body})
		require.NoError(t, err)
	}
	report("dev/pay/text", flight.OutcomeSucceeded, flight.NewBlob("text/plain", []byte("paid\n"), flight.MaxReceiptBody))
	report("dev/pay/big", flight.OutcomeSucceeded, flight.NewBlob("text/plain", []byte(strings.Repeat("x", flight.MaxReceiptBody+1)), flight.MaxReceiptBody))
	report("dev/pay/refused", flight.OutcomeRefused, flight.NewBlob("", nil, 0))
	open("dev/pay/running")
	report("dev/pay/redacted", flight.OutcomeSucceeded, flight.NewBlob("text/plain", []byte("paid\n"), flight.MaxReceiptBody))
	redacted := world.Flight(flight.MustKey("dev/pay/redacted"))
	world.Apply(t, &flight.Redact{Key: redacted.Key, Generation: 1, Actor: "ada", Reason: "r"})
	world.ExpireSession(t, open("dev/pay/doubt").Session)
	world.ExpireSession(t, open("dev/pay/seen").Session)
	seen := world.Flight(flight.MustKey("dev/pay/seen"))
	world.Apply(t, &flight.Resolve{Key: seen.Key, Generation: 1, Version: seen.Version, Finding: flight.FindingHappened, Actor: "ada", Reason: "r"})
	world.Apply(t, &flight.Import{Key: flight.MustKey("dev/pay/old"), Outcome: flight.OutcomeSucceeded, FinishedAt: 1, Retention: time.Second})
	world.Apply(t, &flight.Expire{Key: flight.MustKey("dev/pay/old"), Generation: 1})
	cfg := world.Config()
	world.UseCredentials(&cfg, auth.NodeLimits{})
	server := httptest.NewServer(httpapi.New(cfg))
	t.Cleanup(server.Close)
	return world, func(namespace string, verbs auth.Verbs) map[string]string {
		return map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir(), "FLIGHTD_TOKEN": world.Issue(t, namespace, "ada", verbs, time.Hour)}
	}
}

// A key of one namespace runs again in another one. The copy of a namespace guards the keys that have a receipt, and nothing is
// copied before a person has accepted how many keys it cannot guard.
func TestHazard56_NamespaceCopy(t *testing.T) {
	world, env := copyWorld(t)
	admin := env("*", auth.AllVerbs)
	copied := func(key string) *flight.Flight { return world.Flight(flight.MustKey(key)) }

	r := flightd(admin, "namespace", "copy", "dev", "billing").want(t, cli.ExitOK, "", "")
	for _, text := range []string{"4 receipts would be copied", "not copied, and would run again in billing: 4", "in_doubt    dev/pay/doubt", "running     dev/pay/running", "no_receipt  dev/pay/seen", "expired     1 tombstone"} {
		require.Contains(t, r.out, text)
	}
	require.Contains(t, r.err, "repeat the command with --yes --leave 4")
	require.Nil(t, copied("billing/pay/text"), "nothing was changed")
	for _, leave := range []string{"0", "3", "5"} {
		flightd(admin, "namespace", "copy", "dev", "billing", "--yes", "--leave", leave).want(t, cli.ExitFailed, "", "nothing was changed")
		require.Nil(t, copied("billing/pay/text"))
	}

	for i, line := range []string{"4 receipts copied, 0 existed", "0 receipts copied, 4 existed"} {
		r = flightd(admin, "namespace", "copy", "dev", "billing", "--yes", "--leave", "4", "--actor", "kim")
		require.Zero(t, r.code, "%d: %v", i, r)
		require.Contains(t, r.out, line)
	}
	for _, id := range []string{"text", "big", "refused"} {
		was, is := copied("dev/pay/"+id), copied("billing/pay/"+id)
		require.Equal(t, was.State, is.State)
		require.Equal(t, was.Receipt.Body, is.Receipt.Body, "bytes, type, size and digest")
		require.Equal(t, was.Receipt.ExternalID, is.Receipt.ExternalID)
		require.Equal(t, []any{was.Fingerprint, was.CreatedAt, was.ExpiresAt(), flight.SourceImport}, []any{is.Fingerprint, is.CreatedAt, is.ExpiresAt(), is.Receipt.Source})
	}
	require.True(t, copied("billing/pay/redacted").Receipt.Truncated(), "its bytes are not known")
	require.Equal(t, len("paid\n"), copied("billing/pay/redacted").Receipt.Body.Size)
	answer, err := world.Remote().Open(t.Context(), remote.OpenRequest{Key: flight.MustKey("billing/pay/text"), Nonce: flight.Nonce{9}, Submission: flight.Submission{Fingerprint: flight.Fingerprint{1}}})
	require.NoError(t, err)
	require.Equal(t, flight.DecisionReplay, answer.Decision, "the effect does not run again")

	var left struct{ Left []leftFlight }
	require.NoError(t, json.Unmarshal([]byte(flightd(admin, "namespace", "copy", "dev", "billing", "-o", "json").out), &left))
	require.Len(t, left.Left, 3)
	require.Equal(t, "dev/pay/doubt\ndev/pay/running\ndev/pay/seen\n", flightd(admin, "namespace", "copy", "dev", "billing", "-o", "id").out)

	require.Equal(t, cli.ExitUsage, flightd(admin, "namespace", "copy", "dev", "dev").code)
	bound := env("dev", auth.AllVerbs)
	require.NotZero(t, flightd(bound, "namespace", "copy", "dev", "billing").code, "a token of one namespace")
	require.NotZero(t, flightd(bound, "namespace", "copy", "billing", "dev").code)
}

// A new token of a namespace is another key space: an operator of all namespaces is told what the others hold.
func TestTokenCreate_NamesOtherNamespaces(t *testing.T) {
	_, env := copyWorld(t)
	r := flightd(env("*", auth.AllVerbs), "token", "create", "billing", "-n", "billing").
		want(t, cli.ExitOK, "", "other namespaces hold flights: dev (7 flights)")
	require.NotContains(t, r.out, "dev")
	for namespace, flags := range map[string]string{"dev": "-n dev", "*": "-A"} {
		r = flightd(env("*", auth.AllVerbs), append([]string{"token", "create", "other"}, strings.Fields(flags)...)...)
		require.Zero(t, r.code, "%v", r)
		require.NotContains(t, r.err, "other namespaces", namespace)
	}
	r = flightd(env("billing", auth.AllVerbs), "token", "create", "worker", "-n", "billing").want(t, cli.ExitOK, "", "")
	require.NotContains(t, r.err, "dev", "an operator of one namespace learns nothing of the others")
}

// A saga that is over is copied with its receipt: its steps do not stay behind, and a start in the other namespace finds it. One that is not
// over stays behind with its steps.
func TestNamespaceCopy_Sagas(t *testing.T) {
	t.Parallel()
	s, a := startServer(t), newAgency(t)
	a.open(s)
	input := `{"cents":12,"mail":"ann@example.com"}`
	require.Zero(t, s.flightd("sagas", "start", "trip", "--id", "b-1", "--input", input, "--wait", "forever").code)
	a.write("closed.pay", "")
	require.Zero(t, s.flightd("sagas", "start", "trip", "--id", "b-2", "--input", input).code)
	Eventually(t, "the charge runs", func() bool { return s.flight("trip/b-2#pay").State == "running" })
	copied := s.flightd("namespace", "copy", "default", "billing", "--leave", "4", "--yes", "-o", "json")
	require.Zero(t, copied.code, "%v", copied)
	var result namespaceCopyResult
	require.NoError(t, json.Unmarshal([]byte(copied.out), &result))
	require.Equal(t, 1, result.Copied)
	var left []string
	for _, f := range result.Left {
		left = append(left, f.Key)
	}
	require.ElementsMatch(t, []string{"default/trip/b-2", "default/trip/b-2#hotel", "default/trip/b-2#seat", "default/trip/b-2#pay"}, left)
	require.Zero(t, s.flightd("sagas", "apply", a.path("trip.yaml"), "-n", "billing").code)
	again := s.flightd("sagas", "start", "trip", "--id", "b-1", "--input", input, "-n", "billing", "--wait", "forever")
	require.Zero(t, again.code, "%v", again)
	require.Contains(t, again.out, "done")
	require.NotZero(t, s.flightd("sagas", "start", "trip", "--id", "b-1", "--input", "{}", "-n", "billing").code, "another input")
	require.Len(t, a.books("b-1"), 4)
}
