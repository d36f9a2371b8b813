package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// TestLists_RespectTheNamespace: the namespace setting applies to lists; -A lists all namespaces.
func TestLists_RespectTheNamespace(t *testing.T) {
	s, world := startFake(t)
	for _, key := range []string{"default/charge/1", "billing/charge/2"} {
		world.Apply(t, &flight.Submit{Key: flight.MustKey(key)})
	}
	for _, test := range []struct{ flags, here, notHere string }{
		{"", "default/charge/1", "billing/charge/2"},
		{"-n default", "default/charge/1", "billing/charge/2"},
		{"-n billing", "billing/charge/2", "default/charge/1"},
		{"-A", "billing/charge/2", ""},
		{"--all-namespaces -n billing", "default/charge/1", ""},
	} {
		for _, command := range []string{"flights ls", "tail --no-follow", "tail --no-follow --after 0.0"} {
			env := map[string]string{"FLIGHTD_ADDR": s.url()}
			r := flightd(env, strings.Fields(command+" "+test.flags)...)
			require.Equal(t, 0, r.code, "%s %s: %v", command, test.flags, r)
			require.Contains(t, r.out, test.here, "%s %s: %v", command, test.flags, r)
			require.False(t, test.notHere != "" && strings.Contains(r.out, test.notHere), "%s %s: %v", command, test.flags, r)
		}
	}
	env := map[string]string{"FLIGHTD_ADDR": s.url()}
	r := flightd(env, "__complete", "why", "bil")
	require.Contains(t, r.out, "billing/charge/2", "a full key of another namespace: %v", r)
	for _, command := range []string{"flights ls", "tail"} {
		r := flightd(env, strings.Fields(command+" --prefix billing/")...)
		require.Equal(t, cli.ExitUsage, r.code, "%s of a prefix of another namespace: %v", command, r)
		require.Contains(t, r.err, "-A", "%s of a prefix of another namespace: %v", command, r)
	}
}

// TestLists_EmptyListPrintsANote: an empty table is followed by a message on standard error; JSON and ids are not.
func TestLists_EmptyListPrintsANote(t *testing.T) {
	s, world := startFake(t)
	world.Apply(t, &flight.Submit{Key: flight.MustKey("billing/charge/2")})
	for command, says := range map[string]string{
		"flights ls":           "no flights in namespace default; -A reads all namespaces",
		"doubt ls":             "no doubts in namespace default; -A reads all namespaces",
		"doubt ls -A":          "no doubts",
		"tail --no-follow":     "no events in namespace default; -A reads all namespaces",
		"flights ls -o json":   "",
		"doubt ls -o id":       "",
		"tail --no-follow -A":  "",
		"flights ls -n nobody": "namespace nobody",
	} {
		r := s.flightd(strings.Fields(command)...).want(t, cli.ExitOK, "", says)
		require.False(t, says == "" && r.err != "", "%s: %v", command, r)
		require.False(t, says == "no doubts" && strings.Contains(r.err, "-A"), "%s: %v", command, r)
	}
}

// TestDoubtList_TakesTheFiltersOfFlightsList: with the same meaning.
func TestDoubtList_TakesTheFiltersOfFlightsList(t *testing.T) {
	s, world := startFake(t)
	for i, key := range []string{"default/charge/1", "default/charge/20", "default/mail/1", "other/charge/1"} {
		answer, err := world.Remote().Open(t.Context(), remote.OpenRequest{Key: flight.MustKey(key), Nonce: flight.Nonce{byte(i + 1)}, Owner: "host:1"})
		require.NoError(t, err)
		world.ExpireSession(t, answer.Session)
	}
	for flags, want := range map[string]string{
		"":                                      "default/charge/1 default/charge/20 default/mail/1",
		"--action charge":                       "default/charge/1 default/charge/20",
		"--prefix default/charge/2":             "default/charge/20",
		"--action mail --since 1h":              "default/mail/1",
		"--since 2026-01-01T00:00:00Z -n other": "other/charge/1",
		"-A --action charge --prefix other/":    "other/charge/1",
	} {
		for _, list := range []string{"doubt ls", "flights ls --state in_doubt"} {
			r := s.flightd(strings.Fields(list + " " + flags)...)
			require.Zero(t, r.code, "%s %s: %v", list, flags, r)
			var keys []string
			for line := range strings.Lines(r.out) {
				if key := strings.Fields(line)[0]; key != "KEY" {
					keys = append(keys, key)
				}
			}
			slices.Sort(keys)
			require.Equal(t, want, strings.Join(keys, " "), "%s %s", list, flags)
		}
	}
}

// TestDoubtList_OldestFirstWithInputAndCalls: a person sees what to decide first, and whether somebody waits for it.
func TestDoubtList_OldestFirstWithInputAndCalls(t *testing.T) {
	s, world := startFake(t)
	open := func(n int, input flight.Blob) flight.SessionID {
		req := remote.OpenRequest{Key: flight.MustKey(fmt.Sprintf("default/charge/%d", n)), Nonce: flight.Nonce{byte(n)}, Owner: "host:1"}
		req.Submission.Input = input
		answer, err := world.Remote().Open(t.Context(), req)
		require.NoError(t, err)
		return answer.Session
	}
	first := open(1, flight.NewBlob("application/json", []byte(`{"cents": 4200,
 "to": "`+strings.Repeat("x", 100)+`"}`), flight.MaxInput))
	second, third := open(2, flight.NewBlob("image/png", []byte("\x89PNG\x00"), flight.MaxInput)), open(3, flight.Blob{})
	for _, session := range []flight.SessionID{second, third, first} { // not in the order of their creation
		world.ExpireSession(t, session)
		world.Ledger.Advance(time.Minute)
	}
	world.Apply(t, &flight.CountDuplicates{Key: flight.MustKey("default/charge/2"), ID: flight.CountID{Source: 1, Number: 1},
		Stats: flight.DuplicateStats{Count: 7, First: flight.Time(time.Now().UnixMilli()), Last: flight.Time(time.Now().UnixMilli())}})
	r := s.flightd("doubt", "ls").want(t, cli.ExitOK, "", "")
	lines := strings.Split(r.out, "\n")
	require.Regexp(t, `^KEY +AGE +ATTEMPTS +CALLS +INPUT +CAUSE`, lines[0])
	require.Regexp(t, `^default/charge/2 +\d s +1 +7, \d s ago +\(5 bytes of image/png\) `, lines[1], r.out)
	require.Regexp(t, `^default/charge/3 +\d s +1 +0 +\S`, lines[2], r.out)
	require.Regexp(t, `^default/charge/1 +\d s +1 +0 +\{"cents": 4200, "to": "x+… `, lines[3], r.out)
	r = s.flightd("doubt", "ls", "--limit", "2", "-o", "json")
	require.Less(t, strings.Index(r.out, "default/charge/2"), strings.Index(r.out, "default/charge/3"), "%v", r)
	require.NotContains(t, r.out, "default/charge/1\"", "%v", r)
	require.Contains(t, r.out, `"count": 7`, "%v", r)
	require.Contains(t, r.err, "1 younger doubt is not listed", "%v", r)
	for age, want := range map[time.Duration]string{-time.Second: "0 s", 61 * time.Second: "1 min", 3*time.Hour + 5*time.Minute: "3 h", 49 * time.Hour: "2 days"} {
		require.Equal(t, want, cli.AgeText(age))
	}
}
