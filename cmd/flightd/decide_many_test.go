package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
)

// doubts makes n flights in doubt, mail/1 and so on.
func (s *server) doubts(n int) {
	s.t.Helper()
	for i := range n {
		require.Equal(s.t, 3, s.flightd("exec", "--key", fmt.Sprint("mail/", i+1), "--", "sh", "-c", "exit 3").code)
	}
}

// states counts the flights of a server by their state.
func (s *server) states() map[string]int {
	var page struct{ Flights []struct{ State string } }
	require.NoError(s.t, json.Unmarshal([]byte(s.flightd("flights", "ls", "-o", "json").out), &page))
	count := map[string]int{}
	for _, f := range page.Flights {
		count[f.State]++
	}
	return count
}

// flights ls finds flights by a part of their key and by the external id of their receipt.
func TestFlightsList_Finds(t *testing.T) {
	s, _ := startFake(t)
	s.doubts(3)
	require.Zero(t, s.flightd("doubt", "resolve", "mail/2", "--happened", "--external-id", "ch_17", "--reason", "the log", "--yes").code)
	for query, want := range map[string][]string{"--contains=il/3": {"mail/3"}, "--contains=il/7": nil, "--external-id=ch_17": {"mail/2"}, "--external-id=ch_1": nil} {
		r := s.flightd("flights", "ls", query).want(t, cli.ExitOK, "", "")
		for i := range 3 {
			key := fmt.Sprint("mail/", i+1)
			require.Equal(t, slices.Contains(want, key), strings.Contains(r.out, key), "%s: %s", query, r)
		}
	}
}

// One decision is made for many flights: only for those that are selected, and only with --yes where nobody can be asked.
func TestDecideMany(t *testing.T) {
	s, world := startFake(t)
	s.doubts(5)
	require.Equal(t, 3, s.flightd("exec", "--key", "charge/1", "--", "sh", "-c", "exit 3").code)
	fail := []string{"doubt", "resolve", "--action", "mail", "--since", "1h", "--fail", "--reason", "the log"}
	r := s.flightd(fail...).want(t, cli.ExitUsage, "", "5 flights: it did not happen and must not run; go on?")
	require.Contains(t, r.err, "nothing was changed")
	require.Equal(t, 3, strings.Count(r.err, `"argv":[`), "three inputs are shown: %v", r)
	require.Contains(t, r.err, "and 2 more")
	require.Equal(t, map[string]int{"in_doubt": 6}, s.states())

	r = s.flightd(append(fail, "--yes", "--actor", "ann")...).want(t, cli.ExitOK, "", "")
	require.Equal(t, "5 flights: 5 decided, 0 skipped because they had changed\n", r.out)
	require.Equal(t, map[string]int{"in_doubt": 1, "failed": 5}, s.states())
	require.Contains(t, s.flightd("why", "mail/3").out, "ann resolved it")

	world.Apply(t, &flight.Import{Key: flight.MustKey("default/refund/2"), Outcome: flight.OutcomeRefused}) // it has a receipt, and cannot be retried
	require.Zero(t, s.flightd("submit", "refund", "1").code)
	require.Zero(t, s.flightd("flights", "cancel", "refund/1", "--reason", "a test").code)
	retry := []string{"flights", "retry", "--reason", "the bank is back", "--yes", "-o", "json"}
	r = s.flightd(append(retry, "--prefix", "default/mail/1")...)
	require.JSONEq(t, `{"flights":1,"decided":1,"skipped":0}`, r.out)
	r = s.flightd(append(retry, "--since", "1h")...)
	require.JSONEq(t, `{"flights":4,"decided":4,"skipped":0}`, r.out)
	require.Equal(t, map[string]int{"in_doubt": 1, "cancelled": 1, "ready": 5, "failed": 1}, s.states(), "a cancelled flight needs --state")
	r = s.flightd(append(retry, "--state", "failed")...)
	require.JSONEq(t, `{"flights":0,"decided":0,"skipped":0}`, r.out)
}

// A flight that has changed since it was listed is skipped: the decision was not about its new state.
func TestDecideMany_ChangedMeanwhile(t *testing.T) {
	s, _ := startFake(t)
	s.doubts(4)
	target, err := url.Parse(s.url())
	require.NoError(t, err)
	pass, once := httputil.NewSingleHostReverseProxy(target), sync.Once{}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/resolve") {
			once.Do(func() {
				if r := s.flightd("doubt", "resolve", "mail/2", "--happened", "--external-id", "m-2", "--reason", "the log", "--yes"); r.code != 0 {
					t.Error(r)
				}
			})
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	r := s.flightd("doubt", "resolve", "--action", "mail", "--did-not-happen", "--reason", "the log", "--yes", "--server", between.URL)
	require.Zero(t, r.code, "%v", r)
	require.Equal(t, "4 flights: 3 decided, 1 skipped because they had changed\n", r.out)
	require.Equal(t, map[string]int{"succeeded": 1, "ready": 3}, s.states())
}

func TestDecideMany_Mistakes(t *testing.T) {
	for args, want := range map[string]string{
		"flights retry --reason x":                                                       "takes a key or an id, or flags that select many flights",
		"flights retry charge/1 --action charge --reason x":                              "takes a key or an id, or flags",
		"flights retry --action charge --state succeeded --reason x":                     "--state succeeded: want failed or cancelled",
		"flights retry --action charge":                                                  "--reason is missing",
		"doubt resolve --reason x --fail":                                                "takes a key or an id, or flags",
		"doubt resolve --action a --reason x --happened --external-id ch_1":              "one receipt cannot be that of many",
		"doubt resolve --action a --fail":                                                "--reason is missing",
		"flights retry --prefix other/charge --reason x --yes --server " + "127.0.0.1:1": "unreachable",
		"submit charge":                                                 "name an action, and the id of one job or a file",
		"submit charge o-1 -f jobs.ndjson":                              "name an action, and the id",
		"submit charge -f jobs.ndjson --wait forever":                   "are for one job",
		"submit charge o-1 --input {a --server 127.0.0.1:1 --delay -1s": "cannot be negative",
		"submit charge o-1 --server 127.0.0.1:1 --attempts -1":          "--attempts",
		"submit charge o-1 --recovery never":                            "hold, resend, verify",
		"work -- true":                                                  "name an action, and write the command after --",
		"work charge":                                                   "name an action, and write the command after --",
		"work charge --concurrency 0 -- true":                           "--concurrency must be 1 to 1000",
		"work charge/1 -- true":                                         "action charge/1",
		"work charge --ttl 1s -- true":                                  "whole seconds from 2s",
		"flights wait charge/1 --wait soon":                             "forever",
	} {
		r := flightd(map[string]string{"XDG_STATE_HOME": t.TempDir()}, strings.Fields(args)...)
		require.Contains(t, r.err, want, args)
		if want != "unreachable" {
			require.Equal(t, cli.ExitUsage, r.code, "%s: %v", args, r)
		}
		require.Empty(t, r.out, args)
	}
}
