package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/remote"
)

// doubtful returns a server with a flight in doubt, default/charge/1, that has this input.
func doubtful(t *testing.T, kind, input string) (world *httpapitest.Fake, env map[string]string) {
	t.Helper()
	world = httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(world.Config()))
	t.Cleanup(server.Close)
	open := remote.OpenRequest{Key: flight.MustKey("default/charge/1"), Nonce: flight.Nonce{1}, Owner: "host:1"}
	open.Submission.Input = flight.NewBlob(kind, []byte(input), flight.MaxInput)
	answer, err := world.Remote().Open(t.Context(), open)
	require.NoError(t, err)
	world.ExpireSession(t, answer.Session)
	return world, map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}
}

// A person who resolves a doubt sees the input of the flight without further tools.
func TestContent_TheInputIsShown(t *testing.T) {
	_, env := doubtful(t, "application/json", `{"cents":4200,"to":"ann"}`)
	for _, args := range [][]string{{"doubt", "show", "charge/1"}, {"why", "charge/1", "--full"}, {"flights", "get", "charge/1"}} {
		r := flightd(env, args...).want(t, cli.ExitOK, "", "")
		require.Contains(t, r.out, "input: 25 bytes of application/json, sha256:", "%v", args)
		require.Contains(t, r.out, "\n  {\"cents\":4200,\"to\":\"ann\"}\n", "%v", args)

		r = flightd(env, append(args, "-o", "json")...)
		var said struct {
			Input  json.RawMessage
			Flight struct{ Input json.RawMessage }
		}
		require.NoError(t, json.Unmarshal([]byte(r.out), &said), "%v", r)
		require.JSONEq(t, `{"cents":4200,"to":"ann"}`, string(append(said.Input, said.Flight.Input...)), "%v", args)
	}
	require.NotContains(t, flightd(env, "why", "charge/1").out, "4200")
}

func TestContent_WhatIsNotTextOrLong(t *testing.T) {
	for name, row := range map[string]struct {
		kind, input string
		says        []string
	}{
		"text":    {"text/plain", "one\ntwo\x1b[2J\n", []string{"\n  one\n  two [2J\n"}},
		"binary":  {"image/png", "\x89PNG\x00", []string{"input: 5 bytes of image/png, sha256:", "it is not text", "/input"}},
		"no text": {"text/plain", "a\x00b", []string{"it is not text"}},
		"long":    {"text/plain", strings.Repeat("é", 3000), []string{"input: 6000 bytes of text/plain", "the first 4096 bytes are shown; to fetch it: curl -s -o FILE http://127.0.0.1:"}},
		"between": {"text/plain", "x" + strings.Repeat("é", 3000), []string{"the first 4095 bytes are shown"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, env := doubtful(t, row.kind, row.input)
			r := flightd(env, "doubt", "show", "charge/1")
			for _, want := range row.says {
				require.Contains(t, r.out, want)
			}
			require.NotContains(t, r.out, "\x1b")
			r = flightd(env, "flights", "get", "charge/1", "-o", "json")
			var said struct {
				Input []byte `json:"input_base64"`
			}
			require.NoError(t, json.Unmarshal([]byte(r.out), &said), "%v", r)
			require.Equal(t, base64.StdEncoding.EncodeToString([]byte(row.input)), base64.StdEncoding.EncodeToString(said.Input))
		})
	}
}

func TestContent_TheReceiptIsShown(t *testing.T) {
	world, env := doubtful(t, "application/json", "{}")
	long := strings.Repeat("x", flight.MaxReceiptBody+1)
	for id, body := range map[string]string{"short": `{"paid":true}`, "long": long} {
		world.Apply(t, &flight.Import{Key: flight.MustKey("default/charge/" + id), Outcome: flight.OutcomeSucceeded,
			Body: flight.NewBlob("text/plain", []byte(body), flight.MaxReceiptBody)})
	}
	r := flightd(env, "flights", "get", "charge/short")
	require.Contains(t, r.out, "receipt: 13 bytes of text/plain, sha256:")
	require.Contains(t, r.out, "\n  {\"paid\":true}\n")
	require.NotContains(t, r.out, "input: ", "an imported receipt has none")
	require.Empty(t, r.err)
	r = flightd(env, "flights", "get", "charge/long")
	require.Contains(t, r.out, fmt.Sprintf("the first 4096 bytes are shown; only the first %d bytes are stored", flight.MaxReceiptBody))

	world.Apply(t, &flight.Redact{Key: flight.MustKey("default/charge/short"), Generation: 1, Actor: "ann", Reason: "a test"})
	r = flightd(env, "flights", "get", "charge/short").want(t, cli.ExitOK, "", "")
	require.NotContains(t, r.out, "paid\":")
	require.Contains(t, r.out, "input and receipt erased")
	require.Empty(t, r.err)
}

// If the server cannot return the input, the rest of the flight is still printed.
func TestContent_AnInputThatCannotBeRead(t *testing.T) {
	world := httpapitest.New(t)
	submitFlight(t, world, 1)
	api := httpapi.New(world.Config())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/input") {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		api.ServeHTTP(w, r)
	}))
	defer server.Close()
	flightd(map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}, "flights", "get", "charge/1").
		want(t, cli.ExitOK, "default/charge/1", "read the input")
}

// Texts of callers, operators and providers reach no terminal as control characters, in no format and in no message.
func TestContent_ForeignTextControlsNoTerminal(t *testing.T) {
	const evil = "a\x1b[2J\x07\u007f\u009b31m\u0085\u202ez\u2028"
	quoted, err := json.Marshal(map[string]any{evil: []any{evil, map[string]string{"k\n" + evil: evil + "\nmore"}}})
	require.NoError(t, err)
	world, env := doubtful(t, "application/json", string(quoted))
	f := world.Flight(flight.MustKey("default/charge/1"))
	world.Apply(t, &flight.Resolve{Key: f.Key, Generation: 1, Version: f.Version, Finding: flight.FindingHappened, ExternalID: evil,
		Body: flight.NewBlob("application/json", quoted, flight.MaxReceiptBody), Actor: evil, Reason: evil})
	open := remote.OpenRequest{Key: flight.MustKey("default/charge/2"), Nonce: flight.Nonce{2}, Owner: evil}
	answer, err := world.Remote().Open(t.Context(), open)
	require.NoError(t, err)
	_, err = world.Remote().Report(t.Context(), remote.ReportRequest{ID: open.Key.FlightID(), Key: open.Key, FencingToken: answer.FencingToken, Outcome: flight.OutcomeUnknown, Error: evil})
	require.NoError(t, err)
	world.Apply(t, &flight.Cancel{Key: open.Key, Generation: 1, Actor: evil, Reason: evil})
	runs := [][]string{{"flights", "ls"}, {"flights", "get", "charge/1"}, {"flights", "get", "charge/2"}, {"why", "charge/1", "--full"}, {"why", "charge/2"},
		{"doubt", "ls"}, {"doubt", "show", "charge/2"}, {"tail", "--no-follow", "--last", "50"}, {"flights", "watch", "charge/1"},
		{"flights", "retry", "charge/1", "--reason", "x", "--yes"}}
	for _, args := range runs {
		for _, format := range cli.Formats() {
			r := flightd(env, append(args, "-o", format)...)
			require.NotEmpty(t, r.out+r.err, "%v -o %s", args, format)
			at := strings.IndexFunc(r.out+r.err, func(c rune) bool { return !unicode.IsPrint(c) && c != '\n' && c != '\t' })
			require.Negative(t, at, "%v -o %s prints a control character: %q", args, format, r.out+r.err)
		}
	}
	for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(data []byte, v any) error { return yaml.Unmarshal(data, v) }} {
		r := flightd(env, "flights", "get", "charge/1", "-o", format)
		var said map[string]any
		require.NoError(t, decode([]byte(r.out), &said), r.out)
		var want any
		require.NoError(t, json.Unmarshal(quoted, &want))
		require.Equal(t, want, said["input"], "%s: the escaped text is the same text", format)
		require.Equal(t, evil, said["receipt"].(map[string]any)["external_id"], format)
	}
}

// The user and the password in the address of a server, for a proxy in front of it, are printed nowhere.
func TestContent_UserAndPasswordOfAnAddressAreHidden(t *testing.T) {
	t.Parallel()
	_, env := doubtful(t, "image/png", "\x89PNG\x00")
	answers := strings.Replace(env["FLIGHTD_ADDR"], "://", "://zoe7:s3cret@", 1)
	hidden := func(address string, args ...string) {
		for _, r := range []result{flightd(map[string]string{"FLIGHTD_ADDR": address, "FLIGHTD_TOKEN": "fltd_x"}, args...), flightd(nil, append([]string{"--server", address}, args...)...)} {
			require.NotContains(t, r.out+r.err, "s3c", "%s: %v", address, args)
			require.NotContains(t, r.out+r.err, "zoe7", "%s: %v", address, args)
		}
	}
	for _, format := range cli.Formats() {
		for _, args := range [][]string{{"config", "show"}, {"config", "show", "--origin"}, {"doctor"}, {"ready"}, {"flights", "ls"}, {"flights", "get", "charge/1"}, {"tail", "--no-follow"}} {
			hidden(answers, append(args, "-o", format)...)
		}
	}
	for _, address := range []string{"zoe7:s3cret@127.0.0.1:1", "http://zoe7:s3cret@127.0.0.1:1,https://zoe7:s3cret@127.0.0.1:2", "ftp://zoe7:s3cret@127.0.0.1:1", "http://zoe7:s3c/s3cret@127.0.0.1:1"} {
		for _, args := range [][]string{{"config", "show", "-o", "yaml"}, {"doctor"}, {"ready"}, {"flights", "ls"}} {
			hidden(address, args...)
		}
	}
	r := flightd(map[string]string{"FLIGHTD_ADDR": answers}, "flights", "get", "charge/1")
	require.Contains(t, r.out, "curl -s -o FILE "+env["FLIGHTD_ADDR"]+"/v1/", "%v", r)
}
