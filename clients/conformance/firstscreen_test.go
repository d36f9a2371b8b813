//go:build clients

package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// typedCommand is a command of a console block, with its output there.
type typedCommand struct {
	command string
	output  []string
}

// readConsole returns the commands of a console block. A line that begins with # explains, and is neither.
func readConsole(text string) (commands []typedCommand) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch last := len(commands) - 1; {
		case isCommand:
			commands = append(commands, typedCommand{command: command})
		case line != "" && !strings.HasPrefix(line, "#"):
			commands[last].output = append(commands[last].output, line)
		}
	}
	return commands
}

// pattern turns a line of the README into a regular expression: any date, time and number of an order.
func pattern(line string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(line)
	quoted = regexp.MustCompile(`[0-9]+(:[0-9]+)+`).ReplaceAllString(quoted, `[0-9:]+`)
	quoted = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}`).ReplaceAllString(quoted, `[0-9-]+`)
	quoted = regexp.MustCompile(`(pay|refund)-[0-9]+`).ReplaceAllString(quoted, `$1-[0-9]+`)
	return regexp.MustCompile("^" + quoted + "$")
}

// requireOutput checks that the output has all lines that the README shows, in their order.
func (c typedCommand) requireOutput(t *testing.T, output string) {
	t.Helper()
	lines := strings.Split(output, "\n")
	for _, want := range c.output {
		at := 0
		for at < len(lines) && !pattern(want).MatchString(lines[at]) {
			at++
		}
		require.Less(t, at, len(lines), "$ %s\nwant the line\n%s\nin the output\n%s", c.command, want, output)
		lines = lines[at+1:]
	}
}

// TestFirstScreen does what a newcomer does with the README, twice in one clone: the block that installs in one terminal,
// the first screen and the curl example in a second one, and the block of the team in a third one, while the node of the
// first still runs. Afterwards git finds nothing new in the clone. Only the ports differ from the text, and with
// FLIGHTD_TEST_BINARY the binary, which is then not built.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	blocks := map[string]block{}
	for _, b := range findBlocks(t, "../../README.md") {
		blocks[b.name] = b
	}
	screen := readConsole(blocks["first-screen"].text)
	require.GreaterOrEqual(t, len(screen), 9, "the README has fewer commands than before")
	for _, shell := range shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			requireTools(t, "git", "curl", "jq", "openssl")
			home, clone := t.TempDir(), filepath.Join(t.TempDir(), "flightd")
			output(t, ".", "git", "clone", "-q", strings.TrimSpace(output(t, ".", "git", "rev-parse", "--show-toplevel")), clone)
			install := blocks["install"].text
			if given := os.Getenv("FLIGHTD_TEST_BINARY"); given != "" {
				require.NoError(t, os.Mkdir(filepath.Join(clone, "bin"), 0o700))
				output(t, clone, "cp", given, "bin/flightd")
				install = "bin/flightd dev"
			}
			dev, team := strconv.Itoa(proctest.Ports(t)), strconv.Itoa(proctest.Ports(t))
			env := []string{"HOME=" + home, "XDG_STATE_HOME=" + home, "TMPDIR=" + home, "CURL_HOME=" + home,
				"FLIGHTD_LISTEN=127.0.0.1:" + dev, "FLIGHTD_ADDR=http://127.0.0.1:" + dev,
				"GOCACHE=" + strings.TrimSpace(output(t, ".", "go", "env", "GOCACHE")), "GOMODCACHE=" + strings.TrimSpace(output(t, ".", "go", "env", "GOMODCACHE"))}
			require.NoError(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte(`connect-to = "localhost:7420:127.0.0.1:`+dev+`"`), 0o600))
			openTerminal(t, shell, clone, env...).start(install)
			for round := range 2 {
				second := openTerminal(t, shell, clone, env...)
				second.run("PATH=$PWD/bin:$PATH; until flightd ready >/dev/null 2>&1; do sleep 0.1; done")
				var shown strings.Builder
				for _, c := range screen {
					printed := second.run(c.command)
					c.requireOutput(t, printed)
					shown.WriteString(printed + "\n")
				}
				charges := regexp.MustCompile(`(?m)^charged at .*$`).FindAllString(shown.String(), -1)
				require.Len(t, charges, 2)
				require.Equal(t, charges[0], charges[1], "the command ran once")
				curl := second.run(blocks["sh"].text)
				require.Equal(t, expectedOutput["sh"][min(round, 1)], curl+"\n")

				third := openTerminal(t, shell, clone, env...)
				printed := runBlock(t, third, strings.ReplaceAll(blocks["team"].text, "7443", team))
				require.Regexp(t, `(?m)^charged at [0-9:]+$`, printed)
				require.NotContains(t, printed, "nothing was run")
				third.close()
			}
			require.Empty(t, output(t, clone, "git", "status", "--porcelain"), "the README's commands leave files in the checkout")
		})
	}
}

// output runs a program, and returns what it prints.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v\n%s", name, args, out)
	return string(out)
}
