package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// dataCommands returns the commands that print data, so that they take every format of -o. A command that changes a
// flight gets a new one for each run.
func dataCommands() map[string]func(s *server, run string) (args []string) {
	looked := func(args ...string) func(*server, string) []string {
		return func(*server, string) []string { return args }
	}
	doubtful := func(s *server, run string) string {
		s.flightd("exec", "--key", "charge/"+run, "--", "sh", "-c", "exit 3")
		return "charge/" + run
	}
	started := func(s *server, run string) string {
		file := filepath.Join(s.t.TempDir(), "trip.yaml")
		require.NoError(s.t, os.WriteFile(file, []byte(tripYAML), 0o600))
		s.flightd("sagas", "apply", file)
		s.flightd("sagas", "start", "trip", "--id", run, "--input", `{"cents": 1, "mail": "a@b"}`)
		return file
	}
	return map[string]func(*server, string) []string{
		"sagas apply": func(s *server, run string) []string { return []string{"sagas", "apply", started(s, run)} },
		"sagas versions": func(s *server, run string) []string {
			started(s, run)
			return []string{"sagas", "versions", "trip"}
		},
		"notify put": func(*server, string) []string {
			return []string{"notify", "put", "oncall", "--url", "http://127.0.0.1:9/", "--reason", "a test"}
		},
		"notify ls": func(s *server, _ string) []string {
			s.flightd("notify", "put", "oncall", "--url", "http://127.0.0.1:9/", "--reason", "a test")
			return []string{"notify", "ls"}
		},
		"notify show": func(s *server, _ string) []string {
			s.flightd("notify", "put", "oncall", "--url", "http://127.0.0.1:9/", "--reason", "a test")
			return []string{"notify", "show", "oncall"}
		},
		"sagas ls": func(s *server, run string) []string {
			started(s, run)
			return []string{"sagas", "ls"}
		},
		"sagas start": func(s *server, run string) []string {
			started(s, run)
			return []string{"sagas", "start", "trip", "--id", run, "--input", `{"cents": 1, "mail": "a@b"}`}
		},
		"sagas get": func(s *server, run string) []string {
			started(s, run)
			return []string{"sagas", "get", "trip/" + run}
		},
		"sagas cancel": func(s *server, run string) []string {
			started(s, run)
			return []string{"sagas", "cancel", "trip/" + run, "--reason", "a test"}
		},
		"actions apply": func(s *server, run string) []string { return []string{"actions", "apply", policyFile(s, run)} },
		"actions ls": func(s *server, run string) []string {
			s.flightd("actions", "apply", policyFile(s, run))
			return []string{"actions", "ls"}
		},
		"actions show": func(s *server, run string) []string {
			s.flightd("actions", "apply", policyFile(s, run))
			return []string{"actions", "show", run}
		},
		"flights ls":     looked("flights", "ls", "--limit", "200"),
		"flights get":    looked("flights", "get", "pay-7"),
		"why":            looked("why", "pay-7"),
		"cluster status": looked("cluster", "status"),
		"doubt ls":       looked("doubt", "ls"),
		"doubt show":     looked("doubt", "show", "order-42"),
		"approvals ls":   looked("approvals", "ls"),
		"approvals show": looked("approvals", "show", "refund/1"),
		"doctor":         looked("doctor"),
		"config show":    looked("config", "show", "--origin"),
		"config path":    looked("config", "path"),
		"version":        looked("version"),
		"queues":         looked("queues"),
		"lanes show":     looked("lanes", "show", "ship", "ann"),
		"ready":          looked("ready"),
		"doubt resolve": func(s *server, run string) []string {
			return []string{"doubt", "resolve", doubtful(s, run), "--happened", "--external-id", "ch_1", "--reason", "looked", "--yes"}
		},
		"approvals approve": func(s *server, run string) []string {
			s.flightd("submit", "refund", run, "--approval")
			return []string{"approvals", "approve", "refund/" + run, "--yes"}
		},
		"approvals reject": func(s *server, run string) []string {
			s.flightd("submit", "refund", run, "--approval")
			return []string{"approvals", "reject", "refund/" + run, "--reason", "a test", "--yes"}
		},
		"flights cancel": func(s *server, run string) []string {
			s.flightd("exec", "--key", "charge/"+run, "--not-done-exit", "75", "--", "sh", "-c", "exit 75")
			return []string{"flights", "cancel", "charge/" + run, "--reason", "a test"}
		},
		"flights free": func(s *server, run string) []string {
			s.flightd("doubt", "resolve", doubtful(s, run), "--fail", "--reason", "looked", "--yes")
			return []string{"flights", "free", "charge/" + run, "--reason", "a new order of that number", "--yes"}
		},
		"flights redact": func(s *server, run string) []string {
			s.flightd("doubt", "resolve", doubtful(s, run), "--fail", "--reason", "looked", "--yes")
			return []string{"flights", "redact", "charge/" + run, "--reason", "asked for", "--yes"}
		},
		"flights retry": func(s *server, run string) []string {
			s.flightd("doubt", "resolve", doubtful(s, run), "--fail", "--reason", "looked", "--yes")
			return []string{"flights", "retry", "charge/" + run, "--reason", "a test", "--yes"}
		},
	}
}

// policyFile writes the policy of an action with the given name, and returns the file.
func policyFile(s *server, name string) string {
	file := filepath.Join(s.t.TempDir(), "action.yaml")
	require.NoError(s.t, os.WriteFile(file, []byte("action: "+name+"\nrecovery: hold\n"), 0o600))
	return file
}

// otherCommands returns the commands that print no data or have tests of their own, with the reason.
func otherCommands() map[string]string {
	return map[string]string{
		"exec":                      "the output is the command's own, byte for byte",
		"dev":                       "TestServe_Banner",
		"serve":                     "as dev; TestServe_Banner",
		"token create":              "a server with tokens; TestAdmin_EveryFormat",
		"token ls":                  "a server with tokens; TestAdmin_EveryFormat",
		"token revoke":              "a server with tokens; TestAdmin_EveryFormat",
		"namespace set":             "a server with tokens; TestAdmin_EveryFormat",
		"namespace copy":            "a server with two namespaces; TestHazard56_NamespaceCopy",
		"namespace ls":              "a server with tokens; TestAdmin_EveryFormat",
		"namespace rm":              "a server with tokens; TestAdmin_EveryFormat",
		"audit ls":                  "a server with tokens; TestAdmin_EveryFormat",
		"whoami":                    "a server with tokens; TestAdmin_EveryFormat",
		"cert init":                 "it writes files; TestCert_EveryFormat",
		"cert client":               "it writes files; TestCert_EveryFormat",
		"cluster raise-lease-epoch": "what it did is on standard error; TestCluster_RaiseOfTheLeaseEpoch",
		"cluster replace":           "a cluster with tokens; TestClusterServe",
		"cluster found":             "it writes files; TestClusterFound_EveryFormat",
		"backup":                    "it writes files; TestRestore_NothingRunsAgainWithoutAPersonsWord",
		"restore":                   "it writes files; TestRestore_NothingRunsAgainWithoutAPersonsWord",
		"restore accept":            "it writes files; TestRestore_NothingRunsAgainWithoutAPersonsWord",
		"restore asked":             "a list that is empty without a restore; TestRestore_NothingRunsAgainWithoutAPersonsWord",
		"restore finish":            "as restore accept; TestRestore_NothingRunsAgainWithoutAPersonsWord",
		"drill":                     "it takes minutes; package drill tests its report",
		"tail":                      "a stream; its own tests read it",
		"actions rm":                "what it did is on standard error; TestActions_ApplyShowRemove",
		"notify test":               "a target that answers; TestNotify_KilledInMidEffect",
		"notify rm":                 "what it did is on standard error; TestContract of package node removes a target",
		"queues pause":              "what it did is on standard error; TestQueues_PauseAndResume",
		"queues resume":             "as queues pause",
		"queues drain":              "as queues pause; TestQueues_DrainAndWatch",
		"queues watch":              "a stream; its own tests read it",
		"flights watch":             "a stream; its own tests read it",
		"flights wait":              "the receipt, byte for byte; its own tests read it",
		"submit":                    "a summary, or a receipt; TestSubmit_OneJob and TestSubmit_File_SafeToRunAgain",
		"sagas lint":                "it prints nothing if nothing is wrong; TestSagas_Define",
		"sagas watch":               "a stream; its own tests read it",
		"sagas delete":              "as namespace rm; TestSagas_Define",
		"sagas undo-late":           "as sagas get; it needs a late success, as in TestHazard42_LateSuccessIsUndoneOnRequest",
		"work":                      "it prints no data; its own tests read its log",
		"import":                    "a summary, whose ids are those of keys that differ; its own tests read it",
		"completion bash":           "a script",
		"completion zsh":            "a script",
		"completion fish":           "a script",
		"completion powershell":     "a script",
	}
}

// TestOutput_EveryCommandTakesEveryFormat: standard output has data only, standard error has messages.
func TestOutput_EveryCommandTakesEveryFormat(t *testing.T) {
	data, other := dataCommands(), otherCommands()
	for _, c := range allCommands(t) {
		path := strings.TrimPrefix(c.CommandPath(), "flightd ")
		if c.HasSubCommands() && !c.HasLocalFlags() {
			continue
		}
		require.False(t, data[path] == nil && other[path] == "", "%s: add it to dataCommands or otherCommands", path)
	}
	s := startServer(t)
	s.fake = true // its commands run in this process, which takes a fraction of the time
	s.flightd("exec", "--key", "pay-7", "--", "true")
	s.flightd("exec", "--key", "order-42", "--", "sh", "-c", "exit 3")
	s.flightd("submit", "refund", "1", "--approval")
	s.flightd("submit", "ship", "o-1", "--lane", "ann")
	for path, prepare := range data {
		changes := strings.Contains("sagas apply, approvals approve, approvals reject, doubt resolve, flights cancel, flights free, flights retry, flights redact", path)
		for _, format := range cli.Formats() {
			name := path + " -o " + format
			r := s.flightd(append(prepare(s, strings.ReplaceAll(path, " ", "-")+"-"+format), "-o", format)...)
			want := cli.ExitOK
			if path == "doctor" {
				want = cli.ExitFailed // order-42 is in doubt
			}
			require.Equal(t, want, r.code, "%s: %v", name, r)
			require.Equal(t, changes, (r.err != ""), "%s: %v", name, r)
			require.NotContains(t, r.out, "flightd: ", "%s: %v", name, r)
			require.False(t, !strings.HasSuffix(r.out, "\n") && path != "doctor", "%s: %v", name, r)
			err := checkReadable(format, r.out)
			require.NoError(t, err, "%s: %v\n%s", name, err, r.out)
		}
	}
}

// checkReadable returns an error if out is not valid in this format.
func checkReadable(format, out string) error {
	var v any
	switch format {
	case "json":
		return json.Unmarshal([]byte(out), &v)
	case "yaml":
		if strings.HasPrefix(out, "{") || strings.HasPrefix(out, "[") {
			return fmt.Errorf("JSON instead of YAML")
		}
		return yaml.Unmarshal([]byte(out), &v)
	case "id":
		for line := range strings.Lines(out) {
			if len(strings.Fields(line)) != 1 {
				return fmt.Errorf("%q is not an id", line)
			}
		}
	}
	return nil
}

// TestServers_AreTriedInTurn: servers set by flag, environment or file, for exec and for other commands.
func TestServers_AreTriedInTurn(t *testing.T) {
	s, _ := startFake(t)
	both := "127.0.0.1:1," + s.address
	for _, args := range [][]string{
		{"exec", "--key", "pay-7", "--server", both, "--", "echo", "paid"},
		{"exec", "--key", "pay-7", "--server", "127.0.0.1:1", "--server", s.address, "--", "echo", "paid"},
		{"flights", "get", "pay-7", "--server", both},
	} {
		r := flightd(nil, args...)
		require.Zero(t, r.code, "%v: %v", args, r)
	}
	env := withConfig(t, "server: [127.0.0.1:1, "+s.address+"]\n")
	r := flightd(env, "flights", "ls", "-o", "id")
	require.Equal(t, 0, r.code, "by the file: %v", r)
	require.Len(t, strings.Fields(r.out), 1, "by the file: %v", r)
	env["FLIGHTD_ADDR"] = "127.0.0.1:2 127.0.0.1:1"
	r = flightd(env, "__complete", "why", "")
	require.Equal(t, ":4\n", r.out, "the environment comes before the file: %v", r)
}
