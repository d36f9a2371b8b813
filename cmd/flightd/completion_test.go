package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// complete returns the words that a shell would offer.
func (s *server) complete(words ...string) []string {
	s.t.Helper()
	r := s.flightd(append([]string{"__complete"}, words...)...)
	require.Equal(s.t, 0, r.code, "__complete %q: %v", words, r)
	return offeredWords(r.out)
}

// offeredWords returns the words of a completion, without their descriptions.
func offeredWords(out string) (words []string) {
	for line := range strings.Lines(out) {
		if word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return words
}

// TestComplete_KeysComeLiveFromTheServer: a new key is offered at once, and only to commands that apply to its state. work and submit offer
// actions.
func TestComplete_KeysComeLiveFromTheServer(t *testing.T) {
	s, _ := startFake(t)
	got := s.complete("why", "")
	require.Empty(t, got, "an empty server offers %q", got)
	s.flightd("exec", "--key", "pay-7", "--", "true")
	s.flightd("exec", "--key", "charge/order-42", "--", "sh", "-c", "exit 3")
	s.flightd("exec", "-n", "other", "--key", "charge/order-43", "--", "true")
	id := s.flight("pay-7").ID
	completed := func(lines map[string]string) {
		t.Helper()
		for line, want := range lines {
			require.Equal(t, want, strings.Join(s.complete(strings.Split(line, " ")...), " "), line)
		}
	}
	completed(map[string]string{
		"why ": "charge/order-42 exec/pay-7", "why pay": "pay-7", "why ch": "charge/order-42",
		"why default/": "default/charge/order-42 default/exec/pay-7", "why other/ch": "other/charge/order-43", "why " + id[:6]: id,
		"why nothing": "", "why pay-7 ": "", "-n other why ": "charge/order-43", "doubt resolve ": "charge/order-42", "doubt show pay": "",
		"flights get exec/": "exec/pay-7", "flights retry ": "", "flights cancel ": "charge/order-42", "flights ls ": "",
		"why -o ": "table json yaml id", "exec --recovery ": "hold resend",
		"flights ls --state ": strings.Join(stateWords(), " "), "tail --kind ": strings.Join(kindWords(), " "),
	})
	require.Zero(t, s.flightd("submit", "mail", "m-1").code)
	completed(map[string]string{"submit ma": "mail", "work ma": "mail", "work mail ma": "mail", "submit mail ": ""})
	Eventually(t, "bash offers pay-7", func() bool { return s.completeInBash("why", "pa") == "pay-7" }) // a completion may time out on a busy machine
	offered := s.completeInBash("do")
	require.Contains(t, offered, "doubt", "bash offers %q", offered)
	require.Contains(t, offered, "doctor", "bash offers %q", offered)
	offered = s.completeInBash("exec", "--recovery", "")
	require.Equal(t, "hold resend", offered, "behind a flag bash offers %q", offered)
	offered = s.completeInBash("exec", "--recovery=r")
	require.Equal(t, "resend", offered, "behind = bash offers %q", offered)
}

// bashCompletionPackage stands for the package bash-completion.
const bashCompletionPackage = `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }`

// completeInBash completes words in a real bash that has sourced the completion script.
func (s *server) completeInBash(words ...string) string {
	s.t.Helper()
	script := `source <("$0" completion bash); PATH=$(dirname "$0"):$PATH
COMP_WORDS=(flightd "$@"); COMP_CWORD=$#; COMP_LINE="flightd $*"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
compopt() { :; }
` + bashCompletionPackage + `
__start_flightd; printf '%s\n' "${COMPREPLY[@]}"`
	c := exec.Command("bash", append([]string{"--norc", "-c", script, program}, words...)...)
	c.Env = append(os.Environ(), "FLIGHTD_ADDR="+s.url())
	out, err := c.CombinedOutput()
	require.NoError(s.t, err, "bash: %v\n%s", err, out)
	var offers []string
	for line := range strings.Lines(string(out)) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		offers = append(offers, word)
	}
	return strings.Join(offers, " ")
}

// TestComplete_FilesWhereAFileIsAskedFor: file names are offered for FILE arguments only.
func TestComplete_FilesWhereAFileIsAskedFor(t *testing.T) {
	for words, want := range map[string]string{"import ": ":0\n", "import a.ndjson ": ":4\n", "doctor ": ":4\n"} {
		r := flightd(nil, append([]string{"__complete"}, strings.Split(words, " ")...)...)
		require.Equal(t, want, r.out, "%s: %v", words, r)
	}
}

// TestComplete_IsSilentAndQuickWhereNoServerAnswers: no server, a server that does not answer, or invalid settings.
func TestComplete_IsSilentAndQuickWhereNoServerAnswers(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	require.NoError(t, err)
	defer deaf.Close()
	for name, env := range map[string]map[string]string{
		"nobody":   {"FLIGHTD_ADDR": "127.0.0.1:1"},
		"deaf":     {"FLIGHTD_ADDR": deaf.Addr().String()},
		"nonsense": {"FLIGHTD_ADDR": "ftp://x"},
		"broken":   withConfig(t, "colour: red\n"),
	} {
		for _, words := range [][]string{{"why", ""}, {"doubt", "resolve", "x"}} {
			r := flightd(env, append([]string{"__complete"}, words...)...)
			talk := strings.TrimSpace(strings.Replace(r.err, "Completion ended with directive: ShellCompDirectiveNoFileComp", "", 1))
			require.Equal(t, 0, r.code, "%s, %v: %v", name, words, r)
			require.Equal(t, ":4\n", r.out, "%s, %v: %v", name, words, r)
			require.Empty(t, talk, "%s, %v: %v", name, words, r)
		}
	}
}

func TestCompletion_EveryShellHasOne(t *testing.T) {
	for shell, holds := range map[string]string{"bash": "__start_flightd", "zsh": "#compdef flightd", "fish": "complete -c flightd", "powershell": "Register-ArgumentCompleter"} {
		r := flightd(nil, "completion", shell)
		require.Equal(t, 0, r.code, "%s: exit %d, %q", shell, r.code, r.err)
		require.Empty(t, r.err, "%s: exit %d, %q", shell, r.code, r.err)
		require.Contains(t, r.out, holds, "%s: exit %d, %q", shell, r.code, r.err)
		require.Contains(t, r.out, "__complete", "%s: exit %d, %q", shell, r.code, r.err)
	}
	script := filepath.Join(t.TempDir(), "flightd")
	err := os.WriteFile(script, []byte(flightd(nil, "completion", "bash").out), 0o600)
	require.NoError(t, err)
	out, err := exec.Command("bash", "-n", script).CombinedOutput()
	require.NoError(t, err, "bash -n: %v\n%s", err, out)
	r := flightd(nil, "completion", "tcsh")
	require.Equal(t, cli.ExitUsage, r.code, "tcsh: %v", r)
}
