//go:build clients

package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// readmes are the files whose snippets run, with the least number of snippets of each.
var readmes = map[string]int{"../../clients/README.md": 5, "../../README.md": 4, "../../docs/webhooks.md": 1}

// ofFirstScreen are the blocks that TestFirstScreen runs.
var ofFirstScreen = []string{"first-screen", "install", "team"}

// expectedOutput is the output of the first and the second run of each snippet.
var expectedOutput = map[string][2]string{
	"python":        {"executed ch_17\n", "replayed ch_17\n"},
	"python-verify": {"ch_18 ch_18\n", "ch_18 ch_18\n"},
	"python-worker": {"duplicate\nr_17\n", "duplicate\nr_17\n"}, "typescript-worker": {"duplicate\ni_17\n", "duplicate\ni_17\n"},
	"typescript": {"executed ch_17\n", "replayed ch_17\n"},
	"go":         {"charging 4200\nch_17\n", "ch_17\n"},
	"sh":         {"executed ch_17\n", "replayed ch_17\n"},
	"sh-token":   {"proceed\n", "idempotency_in_flight\n"},
	"webhook":    {"200 200\n", "200 200\n"},
}

// TestReadmes runs every snippet of the READMEs unchanged, twice, against its own server.
func TestReadmes(t *testing.T) {
	t.Parallel()
	for file, count := range readmes {
		var snippets []block
		for _, b := range findBlocks(t, file) {
			if b.marker == "run" && b.name != "" && !slices.Contains(ofFirstScreen, b.name) {
				snippets = append(snippets, b)
			}
		}
		require.GreaterOrEqual(t, len(snippets), count, file)
		for _, s := range snippets {
			if l := s.client(); l != "" && !wanted()[l] {
				t.Logf("%s is not selected: FLIGHTD_CLIENTS=%q", s.name, os.Getenv("FLIGHTD_CLIENTS"))
				continue
			}
			run := func(prepare func(*testing.T, *server) func() string) func(*testing.T) {
				return func(t *testing.T) {
					t.Parallel()
					want, known := expectedOutput[s.name]
					require.True(t, known, "no expected output for snippet %q: add it to expectedOutput", s.name)
					run := prepare(t, startServer(t, secure || strings.HasSuffix(s.name, "-token")))
					for _, text := range want {
						require.Equal(t, text, run())
					}
				}
			}
			name := strings.TrimPrefix(file, "../../") + "/" + s.name
			if s.language != "bash" {
				t.Run(name, run(s.prepare))
				continue
			}
			for _, shell := range shells {
				t.Run(name+"/"+shell, run(func(t *testing.T, h *server) func() string { return s.prepareShell(t, h, shell) }))
			}
		}
	}
}

// client returns the client that a snippet uses, or "".
func (b block) client() string {
	return map[string]string{"go": "go", "python": "python", "ts": "typescript"}[b.language]
}

// prepare writes the snippet to a directory, and returns a function that runs it.
func (b block) prepare(t *testing.T, h *server) (run func() string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	env := environment(append(h.credentials(), "FLIGHTD_ADDR="+h.address(), "XDG_STATE_HOME="+dir, "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir)...)
	command := func(name string, args ...string) func() string {
		return func() string {
			cmd := exec.Command(name, args...)
			cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, proctest.KillWithParent()
			var err lockedBuffer
			cmd.Stderr = &err
			out, failed := cmd.Output()
			require.NoError(t, failed, "%s\n%s%s", b.text, out, err.String())
			return string(out)
		}
	}
	switch b.language {
	case "python":
		languages()[1].requireReady(t)
		write("flightd.py", read(t, "../python/flightd.py"))
		write("snippet.py", b.text)
		return command(python(), "snippet.py")
	case "go":
		write("main.go", strings.ReplaceAll(b.text, "http://127.0.0.1:7420", h.address()))
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "snippet"), filepath.Join(dir, "main.go")) // of this module, for its packages
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s\n%s", b.text, out)
		return command(filepath.Join(dir, "snippet"))
	case "ts":
		languages()[2].requireReady(t)
		return b.compileTypeScript(t, dir, write, command)
	}
	t.Fatalf("unknown snippet language %q", b.language)
	return nil
}

// prepareShell opens a terminal, and returns a function that runs the snippet there.
func (b block) prepareShell(t *testing.T, h *server, shell string) (run func() string) {
	t.Helper()
	requireTools(t, "curl", "jq", "openssl")
	dir := t.TempDir()
	port := h.address()[strings.LastIndexByte(h.address(), ':')+1:]
	curlrc := fmt.Sprintf("connect-to = \"localhost:7420:127.0.0.1:%s\"\n", port)
	if a := h.access; a != nil {
		curlrc += fmt.Sprintf("proto-default = \"https\"\ncacert = \"%s\"\n", a.caFile)
		if !strings.HasSuffix(b.name, "-token") { // a snippet about tokens sends its own; a second one would be rejected
			curlrc += fmt.Sprintf("header = \"Authorization: Bearer %s\"\n", a.token(t))
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".curlrc"), []byte(curlrc), 0o600))
	x := openTerminal(t, shell, dir, append(h.credentials(), "FLIGHTD_ADDR="+h.address(), "HOME="+dir)...)
	return func() string { return runBlock(t, x, b.text) + "\n" }
}

// compileTypeScript compiles the snippet with the client's compiler options, and returns a function that runs it.
func (b block) compileTypeScript(t *testing.T, dir string, write func(name, text string), command func(string, ...string) func() string) func() string {
	t.Helper()
	modules, err := filepath.Abs("../typescript/node_modules")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	write("package.json", `{"type":"module"}`)
	write("flightd.ts", read(t, "../typescript/flightd.ts"))
	write("snippet.ts", b.text)
	command("node", "node_modules/typescript/bin/tsc", "--strict", "--target", "ES2022", "--module", "NodeNext", "--lib", "ES2022", "--skipLibCheck", "--types", "node", "snippet.ts")()
	return command("node", "snippet.js")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// requireTools fails the test if a tool is missing.
func requireTools(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		_, err := exec.LookPath(tool)
		require.NoError(t, err, "the snippet needs %s: install it", tool)
	}
}
