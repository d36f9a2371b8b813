package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

const chargeYAML = `action: charge
recovery: resend
provider_window: 24h
retry: { attempts: 8, first: 1s, max: 1m, within: 20h }
timeout: 30s
lane: { by: /customer, limit: 1 }
`

// apply says what it does, a second time changes nothing, and what show prints can be applied.
func TestActions_ApplyShowRemove(t *testing.T) {
	s, _ := startFake(t)
	file := filepath.Join(t.TempDir(), "charge.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(chargeYAML + "---\naction: mail\nrecovery: verify\nsettle_delay: 5s\nretention: 7d\n")

	r := s.flightd("actions", "apply", "--dry-run", file)
	require.Equal(t, "charge: would be created\nmail: would be created\n", r.out, "%v", r)
	require.Equal(t, cli.ExitFailed, s.flightd("actions", "show", "charge").code)
	r = s.flightd("actions", "apply", file, "--reason", "as the bank says")
	require.Equal(t, "charge: created\nmail: created\n", r.out, "%v", r)
	r = s.flightd("actions", "apply", file)
	require.Equal(t, "charge: unchanged\nmail: unchanged\n", r.out, "%v", r)
	shown := s.flightd("actions", "show", "charge")
	require.Contains(t, shown.out, "as the bank says\naction: charge\nrecovery: resend\nprovider_window: 24h\nretry:\n  attempts: 8\n  first: 1s\n  max: 1m\n  within: 20h\ntimeout: 30s\nlane:\n  by: /customer\n  limit: 1\n")
	write(shown.out)
	require.Equal(t, "charge: unchanged\n", s.flightd("actions", "apply", file).out)
	write(strings.Replace(chargeYAML, "attempts: 8", "attempts: 20", 1))
	require.Equal(t, "charge: changed\n  retry.attempts: 20, was 8\n", s.flightd("actions", "apply", file).out)
	require.Equal(t, "charge\nmail\n", s.flightd("actions", "ls", "-o", "id").out)
	require.Zero(t, s.flightd("actions", "rm", "mail", "--reason", "gone", "--yes").code)
	require.Equal(t, "charge\n", s.flightd("actions", "ls", "-o", "id").out)
}

// A mistake in a file is named with its place, and nothing of any file is applied.
func TestActions_MistakesInAFile(t *testing.T) {
	s, _ := startFake(t)
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	require.NoError(t, os.WriteFile(good, []byte(chargeYAML), 0o600))
	for text, want := range map[string]string{
		"action: mail\nrecovry: hold\n":                              `bad.yaml:2:1: action mail: recovry: unknown field`,
		"action: mail\nretry: { attempts: 8, often: 1s }\n":          `bad.yaml:2:23: action mail: retry.often: unknown field`,
		"action: mail\ntimeout: 30\n":                                `is not a duration`,
		"action: mail\ntimeout: -30s\n":                              `is not a duration`,
		"action: mail\ntimeout: 1500us\n":                            `is not a duration`,
		"action: mail\ntimeout: soon\n":                              `is not a duration`,
		"action: mail\naction: sms\n":                                `[2:1] mapping key "action" already defined`,
		"action: mail\nrecovery: again\n":                            `action mail: recovery: must be hold, resend or verify`,
		"action: mail\nprovider_window: 24h\n":                       `action mail: provider_window: is allowed only with the recovery resend`,
		"action: mail\nretry: { attempts: 2, first: 2m, max: 1m }\n": `action mail: retry.max: must not be less than first`,
		"action: mail\nlane: { by: customer }\n":                     `action mail: lane.by: must be a JSON pointer into the input`,
		"action: a/b\n":                                              `action a/b: action:`,
		"recovery: hold\n":                                           `action without a name: action:`,
		"# nothing\n":                                                `it has no action`,
		"- action: mail\n":                                           `bad.yaml:1:1: action without a name: document: a document begins with the line action: NAME`,
		"action: charge\n":                                           `the action charge is in ` + good + ` and in ` + bad,
		"action: [\n":                                                `bad.yaml: `,
	} {
		require.NoError(t, os.WriteFile(bad, []byte(text), 0o600))
		r := s.flightd("actions", "apply", good, bad)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %v", text, r)
		require.Contains(t, r.err, want, text)
	}
	require.Equal(t, cli.ExitUsage, s.flightd("actions", "apply").code)
	require.Equal(t, cli.ExitUsage, s.flightd("actions", "apply", filepath.Join(dir, "none.yaml")).code)
	require.Empty(t, s.flightd("actions", "ls", "-o", "id").out, "nothing was applied")
}

// A job whose input has no lane is rejected by the action's document, and so is a worker that brings another recovery. The tests of
// package client cover jobs and workers with such a document.
func TestActions_PolicyOfAJob(t *testing.T) {
	s, _ := startFake(t)
	file := filepath.Join(t.TempDir(), "charge.yaml")
	require.NoError(t, os.WriteFile(file, []byte("action: charge\nrecovery: resend\nlane: { by: /customer }\n"), 0o600))
	require.Zero(t, s.flightd("actions", "apply", file).code)
	s.flightd("submit", "charge", "no-lane", "--input", `{"cents":1}`).want(t, cli.ExitUsage, "", "/input/customer: nothing is there")
	require.Equal(t, cli.ExitFailed, s.flightd("flights", "get", "charge/no-lane").code, "nothing was submitted")
	r := s.flightd("work", "charge", "--recovery", "hold", "--", "true")
	require.Equal(t, cli.ExitUsage, r.code, "%v", r)
	require.Contains(t, r.err, "the worker's policy of the action charge differs from its document: recovery is hold here, and resend in the document")
	require.Contains(t, r.err, "flightd actions show charge")
}

// Without the verb define, a worker brings its policy to nobody, says so, and works.
func TestActions_VerbDefine(t *testing.T) {
	t.Parallel()
	s := startTeam(t)
	token := func(name, verbs string) string {
		r := s.flightd(s.admin(), "token", "create", name, "-n", "default", "--verbs", verbs).want(t, cli.ExitOK, "", "")
		return strings.TrimSpace(r.out)
	}
	submitter, worker, definer := token("web", "submit,read"), token("worker", "work"), token("definer", "work,define")
	require.Zero(t, s.flightd(submitter, "submit", "charge", "o-1").code)
	command := []string{"work", "charge", "--recovery", "resend", "--", "sh", "-c", `kill $PPID; echo '"paid"'`}
	require.Equal(t, cli.ExitForbidden, s.flightd(submitter, command...).code, "a worker without the verb work ends instead of asking again")
	r := s.flightd(worker, command...).want(t, cli.ExitOK, "", "")
	require.Equal(t, `"paid"`, strings.TrimSpace(s.flightd(submitter, "flights", "wait", "charge/o-1").out))
	require.Contains(t, r.err, "the token lacks the verb define")
	require.Equal(t, cli.ExitFailed, s.flightd(worker, "actions", "show", "charge").code, "there is none")
	require.Zero(t, s.flightd(submitter, "submit", "charge", "o-2").code)
	s.flightd(definer, command...).want(t, cli.ExitOK, "", "")
	require.Contains(t, s.flightd(worker, "actions", "show", "charge").out, "recovery: resend\n")
	require.Equal(t, cli.ExitForbidden, s.flightd(definer, "actions", "rm", "charge", "--reason", "r", "--yes").code)
}
