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

// snippet is a code block of a Markdown file that a reader can run.
type snippet struct {
	file, name string
	kind       string // language of the fence
	text       string // the code
}

// findSnippets returns the snippets of a file: fences after a comment <!-- run: name -->.
func findSnippets(t *testing.T, file string) (all []snippet) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	fence := regexp.MustCompile("(?ms)^<!-- run: ([a-z0-9-]+) -->\n```([a-z]+)\n(.*?)^```$")
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		all = append(all, snippet{file: file, name: m[1], kind: m[2], text: m[3]})
	}
	return all
}

// readmes are the files whose snippets run, with the least number of snippets of each.
var readmes = map[string]int{"../README.md": 5, "../../README.md": 3}

// expectedOutput is the output of the first and the second run of each snippet.
var expectedOutput = map[string][2]string{
	"python":        {"executed ch_17\n", "replayed ch_17\n"},
	"python-verify": {"ch_18 ch_18\n", "ch_18 ch_18\n"},
	"typescript":    {"executed ch_17\n", "replayed ch_17\n"},
	"sh":            {"executed ch_17\n", "replayed ch_17\n"},
	"sh-token":      {"proceed\n", "idempotency_in_flight\n"},
}

// TestReadmes runs every snippet of the READMEs unchanged, twice, against its own server.
func TestReadmes(t *testing.T) {
	for file, count := range readmes {
		snippets := findSnippets(t, file)
		require.GreaterOrEqual(t, len(snippets), count, file)
		for _, s := range snippets {
			if l := s.language(); l != "" && !wanted()[l] {
				t.Logf("%s is not selected: FLIGHTD_CLIENTS=%q", s.name, os.Getenv("FLIGHTD_CLIENTS"))
				continue
			}
			t.Run(filepath.ToSlash(filepath.Join("clients/conformance", file))+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				want, known := expectedOutput[s.name]
				require.True(t, known, "no expected output for snippet %q: add it to expectedOutput", s.name)
				h := startServer(t, secure || strings.HasSuffix(s.name, "-token"))
				run := s.prepare(t, h)
				for _, text := range want {
					require.Equal(t, text, run())
				}
			})
		}
	}
}

func (s snippet) language() string {
	switch s.kind {
	case "ts":
		return "typescript"
	case "bash":
		return ""
	}
	return s.kind
}

// prepare writes the snippet to a directory, and returns a function that runs it.
func (s snippet) prepare(t *testing.T, h *server) (run func() string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	env := environment(append(h.credentials(), "FLIGHTD_ADDR="+h.address(), "XDG_STATE_HOME="+dir, "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir)...)
	command := func(name string, args ...string) func() string {
		return func() string {
			cmd := exec.Command(name, args...)
			cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, env, killWithParent()
			var err lockedBuffer
			cmd.Stderr = &err
			out, failed := cmd.Output()
			require.NoError(t, failed, "%s\n%s%s", s.text, out, err.String())
			return string(out)
		}
	}
	switch s.kind {
	case "python":
		languages()[1].requireReady(t)
		write("flightd.py", read(t, "../python/flightd.py"))
		write("snippet.py", s.text)
		return command("python3", "snippet.py")
	case "ts":
		languages()[2].requireReady(t)
		return s.compileTypeScript(t, dir, write, command)
	case "bash":
		requireTools(t, "bash", "curl", "jq", "openssl")
		port := h.address()[strings.LastIndexByte(h.address(), ':')+1:]
		curlrc := fmt.Sprintf("connect-to = \"localhost:7420:127.0.0.1:%s\"\n", port)
		if a := h.access; a != nil {
			curlrc += fmt.Sprintf("proto-default = \"https\"\ncacert = \"%s\"\n", a.caFile)
			if !strings.HasSuffix(s.name, "-token") { // a snippet about tokens sends its own; a second one would be rejected
				curlrc += fmt.Sprintf("header = \"Authorization: Bearer %s\"\n", a.token(t))
			}
		}
		write(".curlrc", curlrc)
		return command("bash", "-euo", "pipefail", "-c", s.text)
	}
	t.Fatalf("unknown snippet language %q", s.kind)
	return nil
}

// compileTypeScript compiles the snippet with the client's compiler options, and returns a function that runs it.
func (s snippet) compileTypeScript(t *testing.T, dir string, write func(name, text string), command func(string, ...string) func() string) func() string {
	t.Helper()
	modules, err := filepath.Abs("../typescript/node_modules")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	write("package.json", `{"type":"module"}`)
	write("flightd.ts", read(t, "../typescript/flightd.ts"))
	write("snippet.ts", s.text)
	command("node", "node_modules/typescript/bin/tsc", "--strict", "--target", "ES2022", "--module", "NodeNext", "--types", "node", "snippet.ts")()
	return command("node", "snippet.js")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// requireTools fails the test if a tool is missing.
func requireTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		_, err := exec.LookPath(tool)
		require.NoError(t, err, "the snippet needs %s: install it", tool)
	}
}
