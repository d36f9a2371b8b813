package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/lease/leasetest"
)

func (fi *fixture) files() []string {
	entries, err := os.ReadDir(fi.spool)
	require.NoError(fi.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// unrecorded performs an effect whose report reaches no server.
func (fi *fixture) unrecorded() {
	fi.t.Helper()
	fi.unrecordedBy(cutBefore)
}

// unrecordedBy performs an effect whose report meets a fault.
func (fi *fixture) unrecordedBy(f fault) {
	fi.t.Helper()
	c := fi.connect(client.WithReportTimeout(50 * time.Millisecond))
	fi.setFault(func(r *http.Request) fault {
		if hasSuffix(r, "/report") {
			return f
		}
		return none
	})
	_, err := c.Do(fi.t.Context(), call(`1`), succeedingHandler(`{"id": 1}`))
	var unrecorded *client.Unrecorded
	require.ErrorAs(fi.t, err, &unrecorded)
	require.Equal(fi.t, `{"id": 1}`, string(unrecorded.Result.Answer.Body))
	require.Equal(fi.t, flight.OutcomeSucceeded, unrecorded.Result.Outcome)
	require.Equal(fi.t, 1, c.SpooledReports())
	require.NoError(fi.t, c.Close(fi.t.Context()))
	fi.expireSessions() // with the process
}

// A report names its key, so that a node can take it which does not know the flight yet; also after it lay on disk.
func TestReportsNameTheirKey(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	var bodies []string
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, "/report") {
			body, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(body))
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		return none
	})
	c := g.connect()
	c.WaitForSpool(t.Context())
	g.waitForFlight(key, func(f *flight.Flight) bool { return f.State.Terminal() })
	_, err := c.Report(t.Context(), key, client.ReportRequest{FencingToken: "x", Outcome: "unknown"})
	require.Error(t, err)
	require.NoError(t, c.Close(t.Context()))
	require.Len(t, bodies, 2)
	for _, body := range bodies {
		require.Contains(t, body, `"key":"default/charge/order-42"`)
	}
}

// A short-lived command still does its share before it goes.
func TestSpoolIsDrainedByAShortCommand(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	files := g.files()
	require.Len(t, files, 1)
	info, err := os.Stat(filepath.Join(g.spool, files[0]))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	g.setFault(nil)
	require.NoError(t, g.connect().Close(t.Context()))
	require.Equal(t, flight.StateSucceeded, g.flight(key).State)
	require.Empty(t, g.files())
}

// A report whose first try fails is on disk before the second, and gone when it was taken.
func TestSpoolFromTheFirstFailure(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	tries := 0
	g.setFault(func(r *http.Request) fault {
		if !hasSuffix(r, "/report") {
			return none
		}
		if tries++; tries == 1 {
			return cutBefore
		}
		require.Len(t, g.files(), 1)
		return none
	})
	_, err := c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
	require.NoError(t, err)
	require.Equal(t, 2, tries)
	require.Empty(t, g.files())
}

// The error of an unrecorded outcome says how the attempt ended, and where its report is.
func TestUnrecorded_NamesTheReportsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		fault  fault
		report client.ReportRequest
		opts   []client.Option
		says   string
		aside  bool
	}{
		"it waits":                     {fault: cutBefore, report: client.ReportRequest{FencingToken: "x", Outcome: "not_done"}, says: "ended as not_done, which is not recorded yet; its report waits in "},
		"not let in":                   {fault: shutOut, report: client.ReportRequest{FencingToken: "x", Outcome: "unknown"}, says: "ended as unknown, which is not recorded yet; its report waits in "},
		"refused":                      {report: client.ReportRequest{FencingToken: "x", Outcome: "succeeded"}, says: ".report.rejected", aside: true},
		"no disk has it":               {fault: cutBefore, report: client.ReportRequest{FencingToken: "x", Outcome: "refused"}, opts: []client.Option{client.WithoutSpool(), client.WithSpool("")}, says: "not on disk, and is lost with this process"},
		"no disk has what was refused": {report: client.ReportRequest{FencingToken: "x", Outcome: "succeeded"}, opts: []client.Option{client.WithoutSpool(), client.WithSpool("")}, says: "its report was rejected, and is not on disk", aside: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			timeout := 10 * time.Second
			if c.fault != none {
				timeout = 50 * time.Millisecond
			}
			recorder := g.connect(append(c.opts, client.WithReportTimeout(timeout))...)
			g.setFault(func(*http.Request) fault { return c.fault })
			_, err := recorder.Record(key, c.report)
			var unrecorded *client.Unrecorded
			require.ErrorAs(t, err, &unrecorded)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.aside, client.IsQuarantined(unrecorded))
		})
	}
}

// Unreadable files are quarantined and logged. Files of another deployment, or of a later version, stay.
func TestSpoolFilesThatAreNotOurs(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	whole := filepath.Join(g.spool, g.files()[0])
	data, err := os.ReadFile(whole)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(g.spool, "torn.report"), data[:len(data)-3], 0o600))
	flipped := append([]byte(nil), data...)
	flipped[len(flipped)/2] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(g.spool, "flipped.report"), flipped, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(g.spool, "later.report"), []byte("FDC2 and whatever that is"), 0o600))
	g.setFault(nil)
	require.NoError(t, g.connect().Close(t.Context()))
	require.ElementsMatch(t, []string{"torn.report.damaged", "flipped.report.damaged", "later.report"}, g.files())
	require.Contains(t, g.logged(), "quarantined")
	require.Contains(t, g.logged(), "a later version")
	require.Equal(t, flight.StateSucceeded, g.flight(key).State)
}

// An intact report that this version cannot read completely stays under its name, is logged once, and is never sent.
func TestSpool_KeepsWhatItCannotRead(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	whole := filepath.Join(g.spool, g.files()[0])
	data, err := os.ReadFile(whole)
	require.NoError(t, err)
	require.NoError(t, os.Remove(whole))
	body := string(data[8:])
	var names []string
	for name, text := range map[string]string{
		"unknown field":      strings.Replace(body, `{`, `{"sealed":true,`, 1),
		"another type":       strings.Replace(body, `"key":"default/charge/order-42"`, `"key":{"of":"another form"}`, 1),
		"another key":        strings.Replace(body, `default/charge/order-42`, `order-42`, 1),
		"another report":     regexp.MustCompile(`"report":"[^"]*"`).ReplaceAllString(body, `"report":"AAAA"`),
		"two documents":      body + `{}`,
		"not even an object": `[1]`,
	} {
		require.NotEqual(t, body, text)
		sum := crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))
		file := append(binary.BigEndian.AppendUint32([]byte("FDC1"), sum), text...)
		require.NoError(t, os.WriteFile(filepath.Join(g.spool, name+".report"), file, 0o600))
		names = append(names, name+".report")
	}
	g.setFault(nil)
	sent := g.count("/report")
	c := g.connect()
	c.WaitForSpool(t.Context())
	c.SendSpoolAgain(t.Context())
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, sent, g.count("/report"))
	require.ElementsMatch(t, names, g.files())
	for _, name := range names {
		require.Equal(t, 1, strings.Count(g.logged(), name), "it is logged once: %s", name)
	}
	require.Equal(t, len(names), strings.Count(g.logged(), "a later version of flightd"))
}

// Close sends reports that are in memory only once more.
func TestClose_ResendsUnspooledReports(t *testing.T) {
	g := newFixture(t)
	c := g.connect(client.WithoutSpool(), client.WithSpool(""), client.WithReportTimeout(50*time.Millisecond))
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, "/report") {
			return cutBefore
		}
		return none
	})
	_, err := c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
	require.ErrorIs(t, err, client.ErrNotSpooled)
	g.setFault(nil)
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, flight.StateSucceeded, g.flight(key).State)
}

// The same holds for a spooled report.
func TestReportThatAnotherDeploymentRefusesLater(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	g.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(_ context.Context, method string) error {
			if method == "Report" {
				return &flight.InvalidError{Field: "fencing_token", Detail: "it is another deployment's"}
			}
			return nil
		}
	})
	for _, end := range []struct{ deployment, file string }{{"another", ".report"}, {leasetest.Deployment, ".rejected"}} {
		g.setDeployment(leasetest.Deployment)
		other := g.handler(end.deployment)
		g.setFault(func(r *http.Request) fault {
			if hasSuffix(r, "/report") {
				g.api = other
			}
			return none
		})
		require.NoError(t, g.connect().Close(t.Context()))
		require.Len(t, g.files(), 1)
		require.Equal(t, end.file, filepath.Ext(g.files()[0]))
	}
}

// A late report is stored as evidence, and the caller gets the decision that was made without it.
func TestFencedReport(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	resend := call(`1`, flight.Policy{Recovery: flight.RecoveryResend})
	result, err := c.Do(t.Context(), resend, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.NoError(t, at.Sending())
		g.expireSessions()
		_, err := g.connect().Do(t.Context(), resend, succeedingHandler(`"second"`))
		return effect.Answer{ExternalID: "another", Body: []byte(`"first"`), ContentType: "application/json"}, err
	})
	require.NoError(t, err)
	require.Equal(t, `"second"`, string(result.Answer.Body))
	require.Equal(t, effect.SourceReplayed, result.Source)
	f := g.flight(key)
	require.Len(t, f.Evidence, 1)
	require.True(t, f.Overlap)
}

// A client that is bound to one deployment asks each of its addresses for it, and talks to no other one.
func TestPinnedDeployment(t *testing.T) {
	g, other := newFixture(t), newFixture(t)
	other.setDeployment("another")
	both := other.server.URL + "," + g.server.URL
	require.Equal(t, leasetest.Deployment, g.connectTo(both, client.WithDeployment(leasetest.Deployment)).Deployment())
	_, err := client.Connect(t.Context(), both, client.WithoutSpool(), client.WithDeployment("a third"))
	require.Equal(t, client.Code("wrong_deployment"), client.CodeOf(err), "%v", err)
	t.Setenv("FLIGHTD_DEPLOYMENT", "another")
	_, err = client.Connect(t.Context(), g.server.URL, client.WithoutSpool())
	require.Equal(t, client.Code("wrong_deployment"), client.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "another")
}
