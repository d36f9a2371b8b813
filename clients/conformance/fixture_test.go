//go:build clients

package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// consoleCommand is one command of the README's first console block, with its output there.
type consoleCommand struct {
	command string
	output  []string
}

// readConsoleBlock returns the commands of the README's first console block, and the scripts that it prints with cat.
func readConsoleBlock(t *testing.T) (commands []consoleCommand, scripts map[string]string) {
	t.Helper()
	_, block, found := strings.Cut(read(t, "../../README.md"), "```console\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	scripts = make(map[string]string)
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch last := len(commands) - 1; {
		case isCommand:
			commands = append(commands, consoleCommand{command: command})
		case line != "":
			commands[last].output = append(commands[last].output, line)
		}
	}
	for _, c := range commands {
		if name, isCat := strings.CutPrefix(c.command, "cat "); isCat {
			scripts[name] = strings.Join(c.output, "\n") + "\n"
		}
	}
	return commands, scripts
}

// pattern turns a line of the README into a regular expression: any date, time and process id, and any text for an
// ellipsis.
func pattern(line string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(line)
	quoted = regexp.MustCompile(`[0-9]+(:[0-9]+)+`).ReplaceAllString(quoted, `[0-9:]+`)
	quoted = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}`).ReplaceAllString(quoted, `[0-9-]+`)
	quoted = regexp.MustCompile(`by [0-9]+ at`).ReplaceAllString(quoted, `by [0-9]+ at`)
	return regexp.MustCompile("^" + strings.ReplaceAll(quoted, "…", ".*") + "$")
}

// TestFirstScreen runs the commands of the README's first console block, in order, in one shell with job control, and
// compares their output. The README does not show slow.sh, so the test writes one that sleeps.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	requireTools(t, "bash")
	commands, scripts := readConsoleBlock(t)
	require.GreaterOrEqual(t, len(commands), 9, "the README has fewer commands than before")
	h, dir := newServer(t), t.TempDir()
	scripts["slow.sh"] = "#!/bin/sh\necho \"$$\" >> ran\nexec sleep 600\n"
	for name, text := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	var script strings.Builder
	for i, c := range commands {
		fmt.Fprintf(&script, "echo; echo '== %d'\n", i)
		script.WriteString("(exit $last)\n") // for $?
		fmt.Fprintf(&script, "%s\nlast=$?\n", c.command)
		if strings.Contains(c.command, "& ") || strings.HasSuffix(c.command, "&") {
			script.WriteString("until [ -s ran ]; do sleep 0.05; done\n") // the script is running
		}
	}
	cmd := exec.Command("bash", "-m", "-c", "last=0\n"+script.String())
	cmd.Dir, cmd.SysProcAttr = dir, killWithParent()
	cmd.Env = environment(append(h.credentials(), "FLIGHTD_ADDR="+h.address(), "XDG_STATE_HOME="+dir, "HOME="+dir, "PATH="+filepath.Dir(binaries.flightd)+":"+os.Getenv("PATH"))...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for i, c := range commands {
		_, output, _ := strings.Cut(string(out), fmt.Sprintf("\n== %d\n", i))
		output, _, _ = strings.Cut(output, "\n== ")
		lines := strings.Split(strings.TrimSpace(output), "\n")
		for _, want := range c.output {
			at := 0
			for at < len(lines) && !pattern(want).MatchString(lines[at]) {
				at++
			}
			require.Less(t, at, len(lines), "$ %s\nwant the line\n%s\nin the output\n%s", c.command, want, output)
			lines = lines[at+1:]
		}
	}
	charges := regexp.MustCompile(`(?m)^charged by ([0-9]+)`).FindAllStringSubmatch(string(out), -1)
	require.Len(t, charges, 2)
	require.Equal(t, charges[0][1], charges[1][1], "the script ran once")
	require.Equal(t, 1, strings.Count(read(t, filepath.Join(dir, "ran")), "\n"), "nothing ran while the flight was in doubt")
}
