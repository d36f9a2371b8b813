package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// problemServer returns the address of a server that answers every request about a flight with one problem.
func problemServer(t *testing.T, code wire.Code) string {
	t.Helper()
	class, known := code.Class()
	require.True(t, known, "no code %s", code)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, r *http.Request) {
		w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		_ = json.NewEncoder(w).Encode(wire.Version{Version: "test", API: "v1", Deployment: "d"})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		w.WriteHeader(class.Status)
		_ = json.NewEncoder(w).Encode(wire.Problem{Status: class.Status, Code: code, Title: class.Title, Detail: "on purpose"})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// withConfig returns an environment with a settings file of this content.
func withConfig(t *testing.T, content string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	err := os.MkdirAll(filepath.Join(dir, "flightd"), 0o700)
	require.NoError(t, err)
	err = os.WriteFile(filepath.Join(dir, "flightd", "config.yaml"), []byte(content), 0o600)
	require.NoError(t, err)
	return map[string]string{"XDG_CONFIG_HOME": dir}
}

// TestCLI_ExitCodes: flightd help exit-codes lists exactly the codes that occur.
func TestCLI_ExitCodes(t *testing.T) {
	got := map[int]bool{cli.ExitDied: true} // tested by TestDev_WriteErrorEndsTheProcess, since it ends a process
	listed := make(map[int]bool)
	page := flightd(nil, "help", "exit-codes").out
	for _, e := range cli.ExitCodes() {
		listed[e.Code] = true
		require.Contains(t, page, fmt.Sprintf("%3d  %s", e.Code, e.Means), "help exit-codes does not list %d", e.Code)
	}
	at := func(code wire.Code) []string {
		return []string{"flights", "get", "a/b", "--server", problemServer(t, code)}
	}
	world := httpapitest.New(t)
	world.Apply(t, &flight.Import{Key: flight.MustKey("default/charge/1"), Outcome: flight.OutcomeSucceeded, Body: flight.NewBlob("text/plain", []byte("paid"), 0)})
	cut := httptest.NewServer(httpapi.New(world.Config()))
	defer cut.Close()
	for _, test := range []struct {
		name string
		env  map[string]string
		args []string
		want int
	}{
		{"worked", nil, []string{"version"}, cli.ExitOK},
		{"no such flight", nil, at(wire.NotFound), cli.ExitFailed},
		{"failed", nil, at(wire.FlightFailed), cli.ExitFailed},
		{"expired", nil, at(wire.Expired), cli.ExitFailed},
		{"no such command", nil, []string{"fly"}, cli.ExitUsage},
		{"no such topic", nil, []string{"help", "fly"}, cli.ExitUsage},
		{"no such flag", nil, []string{"version", "--fly"}, cli.ExitUsage},
		{"no such format", nil, []string{"version", "-o", "xml"}, cli.ExitUsage},
		{"no such key", nil, []string{"why", "a b", "--server", problemServer(t, wire.NotFound)}, cli.ExitUsage},
		{"conflict", nil, at(wire.Conflict), cli.ExitUsage},
		{"input", nil, at(wire.InputInvalid), cli.ExitUsage},
		{"no server", nil, []string{"flights", "ls", "--server", "127.0.0.1:1"}, cli.ExitUnreachable},
		{"doctor, no server", nil, []string{"doctor", "--server", "127.0.0.1:1"}, cli.ExitUnreachable},
		{"in flight", nil, at(wire.InFlight), cli.ExitBusy},
		{"approval", nil, at(wire.ApprovalPending), cli.ExitBusy},
		{"in flight, inside of an exec", map[string]string{"FLIGHTD_FLIGHT_ID": "fl_x"}, at(wire.InFlight), cli.ExitBusyInside},
		{"in doubt", nil, at(wire.InDoubt), cli.ExitInDoubt},
		{"fenced", nil, at(wire.Fenced), cli.ExitInDoubt},
		{"a cut output", nil, []string{"exec", "--key", "charge/1", "--server", cut.URL, "--", "true"}, cli.ExitTruncated},
		{"forbidden", nil, at(wire.Forbidden), cli.ExitForbidden},
		{"who are you", nil, at(wire.Unauthenticated), cli.ExitForbidden},
		{"namespace", map[string]string{"FLIGHTD_NAMESPACE": "a b"}, []string{"version"}, cli.ExitConfig},
		{"environment", map[string]string{"FLIGHTD_OUTPUT": "xml"}, []string{"version"}, cli.ExitConfig},
		{"settings file", withConfig(t, "colour: red\n"), []string{"version"}, cli.ExitConfig},
		{"not this machine", nil, []string{"dev", "--data", t.TempDir(), "--listen", "192.0.2.1:80"}, cli.ExitConfig},
	} {
		r := flightd(test.env, test.args...)
		got[r.code] = true
		require.Equal(t, test.want, r.code, "%s: want %d, got %v", test.name, test.want, r)
		require.Equal(t, (r.code == cli.ExitOK || test.args[0] == "doctor"), (r.err == ""), "%s: want %d, got %v", test.name, test.want, r)
		require.True(t, listed[r.code], "%s: %d is not listed", test.name, r.code)
		require.False(t, test.args[0] != "doctor" && r.code != cli.ExitOK && r.out != "", "%s: an error was printed to standard output: %q", test.name, r.out)
	}
	for code := range listed {
		require.True(t, got[code], "no command returns %d", code)
	}
}

// allCommands returns all visible commands.
func allCommands(t *testing.T) []*cobra.Command {
	t.Helper()
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				all = append(all, sub)
				walk(sub)
			}
		}
	}
	a := &cli.App{Terminal: cli.Terminal{Env: func(string) string { return "" }}}
	walk(newRoot(a))
	return all
}

// TestCLI_EveryCommandHelps: every help has a summary and examples with the command, and every command is under a
// heading.
func TestCLI_EveryCommandHelps(t *testing.T) {
	for _, c := range allCommands(t) {
		r := flightd(nil, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		require.Equal(t, 0, r.code, "%s: short %q, %v", c.CommandPath(), c.Short, r)
		require.Empty(t, r.err, "%s: short %q, %v", c.CommandPath(), c.Short, r)
		require.NotEmpty(t, c.Short, "%s: short %q, %v", c.CommandPath(), c.Short, r)
		require.False(t, strings.HasSuffix(c.Short, "."), "%s: short %q, %v", c.CommandPath(), c.Short, r)
		if c.HasSubCommands() && !c.HasLocalFlags() || c.Parent().Name() == "completion" { // the latter are cobra's
			continue
		}
		examples, use := strings.Index(r.out, "Examples:"), strings.Index(r.out, "Usage:")
		require.GreaterOrEqual(t, examples, 0, "%s: examples at %d, usage at %d\n%s", c.CommandPath(), examples, use, r.out)
		require.LessOrEqual(t, examples, use, "%s: examples at %d, usage at %d\n%s", c.CommandPath(), examples, use, r.out)
		require.Contains(t, r.out[examples:use], c.CommandPath(), "%s: examples at %d, usage at %d\n%s", c.CommandPath(), examples, use, r.out)
	}
	out, last := flightd(nil, "--help").out, 0
	for _, heading := range []string{"Examples:", "Use:", "Inspect:", "Resolve:", "Operate:", "Topics:", "Flags:"} {
		at := strings.Index(out, "\n"+heading)
		require.GreaterOrEqual(t, at, last, "%s is at %d, the heading before it at %d", heading, at, last)
		last = at
	}
	for _, c := range allCommands(t) {
		require.False(t, c.Parent().Name() == "flightd" && c.GroupID == "", "%s is under no heading", c.Name())
	}
}

func TestConfig_FlagsOverEnvironmentOverFileOverDefault(t *testing.T) {
	env := withConfig(t, "server: [10.0.0.1:1, 10.0.0.2:2]\nnamespace: file\noutput: json\nno_color: true\ndata: /file\nlisten: 127.0.0.1:3\n"+
		"listen_metrics: 127.0.0.1:5\nlog_level: warn\nlog_format: json\n")
	path := filepath.Join(env["XDG_CONFIG_HOME"], "flightd", "config.yaml")
	show := func(args ...string) map[string]cli.Value {
		t.Helper()
		r := flightd(env, append([]string{"config", "show", "--origin", "-o", "json"}, args...)...)
		var all []cli.Value
		if err := json.Unmarshal([]byte(r.out), &all); err != nil || r.code != 0 || r.err != "" {
			t.Fatalf("%v: %v", err, r)
		}
		by := make(map[string]cli.Value)
		for _, d := range all {
			by[d.Name] = d
		}
		return by
	}
	for name, want := range map[string]string{"server": "10.0.0.1:1,10.0.0.2:2", "namespace": "file", "no_color": "true", "data": "/file", "listen": "127.0.0.1:3",
		"listen_metrics": "127.0.0.1:5", "log_level": "warn", "log_format": "json"} {
		d := show()[name]
		require.Equal(t, want, d.Value, "the file alone: %+v", d)
		require.Equal(t, "file "+path, d.Origin, "the file alone: %+v", d)
	}
	env["FLIGHTD_ADDR"], env["FLIGHTD_NAMESPACE"], env["NO_COLOR"], env["FLIGHTD_DATA"], env["FLIGHTD_LISTEN"] = "10.0.0.3:3", "env", "1", "/env", "127.0.0.1:4"
	env["FLIGHTD_LISTEN_METRICS"], env["FLIGHTD_LOG_LEVEL"], env["FLIGHTD_LOG_FORMAT"] = "127.0.0.1:6", "error", "text"
	for name, want := range map[string][2]string{
		"server": {"10.0.0.3:3", "FLIGHTD_ADDR"}, "namespace": {"env", "FLIGHTD_NAMESPACE"}, "no_color": {"true", "NO_COLOR"},
		"data": {"/env", "FLIGHTD_DATA"}, "listen": {"127.0.0.1:4", "FLIGHTD_LISTEN"},
		"listen_metrics": {"127.0.0.1:6", "FLIGHTD_LISTEN_METRICS"}, "log_level": {"error", "FLIGHTD_LOG_LEVEL"}, "log_format": {"text", "FLIGHTD_LOG_FORMAT"},
	} {
		d := show()[name]
		require.Equal(t, want[0], d.Value, "the environment, too: %+v", d)
		require.Equal(t, "env "+want[1], d.Origin, "the environment, too: %+v", d)
	}
	by := show("--server", "10.0.0.5:5", "--server", "10.0.0.6:6", "-n", "flag", "--no-color=false")
	for name, want := range map[string]string{"server": "10.0.0.5:5,10.0.0.6:6", "namespace": "flag", "no_color": "false", "output": "json"} {
		d := by[name]
		require.Equal(t, want, d.Value, "flags, too: %+v", d)
		require.True(t, strings.HasPrefix(d.Origin, "flag --"), "flags, too: %+v", d)
	}
	env = nil
	for name, d := range show() {
		require.False(t, name != "output" && d.Origin != "default", "nothing set: %+v", d)
	}
}

func TestConfig_WhatIsWrittenOutIsASettingsFile(t *testing.T) {
	env := withConfig(t, "server: 10.0.0.1:1\nnamespace: billing\nlog_level: debug\n")
	r := flightd(env, "config", "show", "-o", "yaml")
	f, err := cli.ParseConfig([]byte(r.out))
	require.NoError(t, err, "%v: %+v\n%s", err, f, r.out)
	require.Equal(t, "billing", f["namespace"], "%v: %+v\n%s", err, f, r.out)
	require.Equal(t, "debug", f["log_level"], "%v: %+v\n%s", err, f, r.out)
	require.Equal(t, "http://10.0.0.1:1", f["server"], "%v: %+v\n%s", err, f, r.out)
	path := flightd(env, "config", "path")
	require.Equal(t, filepath.Join(env["XDG_CONFIG_HOME"], "flightd", "config.yaml"), strings.TrimSpace(path.out), "path: %v", path)
}

// TestConfig_DevHeedsTheFile: settings that only dev uses are validated by dev alone.
func TestConfig_DevHeedsTheFile(t *testing.T) {
	for content, want := range map[string]string{
		"log_level: loud\n":              "debug, info, warn and error",
		"log_format: xml\n":              "text and json",
		"listen_metrics: 0.0.0.0:9464\n": "listen_metrics",
	} {
		env := withConfig(t, content+"data: "+t.TempDir()+"\nlisten: 127.0.0.1:0\n")
		r := flightd(env, "dev")
		require.Equal(t, cli.ExitConfig, r.code, "%q: %v", content, r)
		require.Contains(t, r.err, want, "%q: %v", content, r)
		r = flightd(env, "config", "path")
		require.Equal(t, 0, r.code, "%q is rejected by another command: %v", content, r)
	}
}

// TestConfig_MistakesAreShownWithLineAndCaret: help, completion and config path still work.
func TestConfig_MistakesAreShownWithLineAndCaret(t *testing.T) {
	for content, want := range map[string]string{
		"namespace: a\ncolour: red\n":    ">  2 | colour: red",
		"namespace: a\nno_color: [1]\n":  ">  2 | no_color: [1]",
		"namespace: a\nnamespace: b\n":   ">  2 | namespace: b",
		"server: {a: b}\n":               ">  1 | server: {a: b}",
		"namespace: \"a\noutput: json\n": "namespace",
	} {
		env := withConfig(t, content)
		r := flightd(env, "flights", "ls")
		require.Equal(t, cli.ExitConfig, r.code, "%q: %v", content, r)
		require.Empty(t, r.out, "%q: %v", content, r)
		require.Contains(t, r.err, want, "%q: %v", content, r)
		require.Contains(t, r.err, "^", "%q: %v", content, r)
		require.Contains(t, r.err, "config.yaml", "%q: %v", content, r)
		for _, args := range [][]string{{"help", "settings"}, {"--help"}, {"completion", "bash"}, {"config", "path"}} {
			r := flightd(env, args...)
			require.Equal(t, 0, r.code, "%q, %v: %v", content, args, r)
			require.Empty(t, r.err, "%q, %v: %v", content, args, r)
		}
	}
	for content, want := range map[string]string{"output: jsno\n": "did you mean json?", "output: xml\n": "the formats are"} {
		r := flightd(withConfig(t, content), "version")
		require.Equal(t, cli.ExitConfig, r.code, "%q: %v", content, r)
		require.Contains(t, r.err, want, "%q: %v", content, r)
	}
}

// TestOutput_YAMLSaysWhatJSONSays: YAML and JSON decode to the same value.
func TestOutput_YAMLSaysWhatJSONSays(t *testing.T) {
	for _, v := range []any{map[string]any{"a": []any{"x: y", "", "- z", nil, true, 1.5}, "b": map[string]any{}}, []any{}, "no: mapping", []string{"null", "1e3"}} {
		var out strings.Builder
		a := &cli.App{Terminal: cli.Terminal{Out: &out}, Settings: cli.Settings{Format: "yaml"}}
		err := a.PrintData(v)
		require.NoError(t, err)
		var back any
		err = yaml.Unmarshal([]byte(out.String()), &back)
		require.NoError(t, err)
		want, _ := json.Marshal(v)
		got, _ := json.Marshal(back)
		require.Equal(t, string(want), string(got), "want %s, got %s from %q", want, got, out.String())
		require.True(t, strings.HasSuffix(out.String(), "\n"), "want %s, got %s from %q", want, got, out.String())
	}
}
