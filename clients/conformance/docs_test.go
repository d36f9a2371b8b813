//go:build clients

package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// block is a code block of a Markdown file. A comment in the line before it says how it is tested:
//
//	<!-- run: NAME -->        by TestReadmes, twice, or by TestFirstScreen
//	<!-- run -->              by TestDocs, after the other blocks of its page
//	<!-- file: NAME -->       by TestDocs: it is the content of a file that later blocks of its page use
//	<!-- not run: REASON -->  not at all
type block struct {
	file     string
	marker   string // "run", "file", "not run" or ""
	name     string // of a block or a file, or the reason
	language string
	text     string
}

var fence = regexp.MustCompile("(?ms)^(?:<!-- (run|file|not run)(?:: ([^\n]+))? -->\n)?```([a-z]+)\n(.*?)^```$")

func findBlocks(t *testing.T, file string) (all []block) {
	t.Helper()
	for _, m := range fence.FindAllStringSubmatch(read(t, file), -1) {
		all = append(all, block{file: file, marker: m[1], name: m[2], language: m[3], text: m[4]})
	}
	return all
}

// runBlock runs a block in a terminal, and fails the test if one of its commands fails.
func runBlock(t *testing.T, x *terminal, text string) string {
	t.Helper()
	x.run(`trap 'echo "== failed with $? =="' ERR`) // quoted: zsh takes an unquoted == for the name of a program
	printed := x.run(text)
	require.NotContains(t, printed, "== failed with ", text)
	return printed
}

// pages are the pages of docs/ whose commands run, with the data that they need: the ledger of the server, and files in
// the folder where the commands run.
var pages = map[string]func(t *testing.T, x *terminal, blocks []block){
	"docs/operations.md": nil,
	"docs/monitoring.md": nil,
	"docs/workers.md":    nil,
	"docs/approvals.md":  nil,
	"docs/sagas.md":      nil,

	"docs/recipes/stripe-webhook.md": nil,
	"docs/recipes/cron.md":           nil,
	"docs/recipes/queue.md":          nil,
	"docs/recipes/model-call.md":     nil,
	"docs/recipes/three-nodes.md":    nil,

	"docs/large-stores.md": func(t *testing.T, x *terminal, blocks []block) {
		example := slices.IndexFunc(blocks, func(b block) bool { return b.language == "json" })
		require.NotEqual(t, -1, example)
		require.NoError(t, os.WriteFile(filepath.Join(x.cmd.Dir, "receipts.ndjson"), []byte(blocks[example].text), 0o600))
		line := strings.ReplaceAll(blocks[example].text, "order-42", "order-17")
		require.NoError(t, os.WriteFile(filepath.Join(x.cmd.Dir, "before.ndjson"), []byte(line), 0o600))
		runBlock(t, x, "flightd import before.ndjson")
	},
}

// TestDocs runs the commands of each page in order, in one shell and a fresh folder with the Python client, as the holder of the admin
// token of a new server. Where a page shows a console, the output must have the lines that it shows. Directories of the system are replaced
// by that folder, and the ports of pages by free ones.
func TestDocs(t *testing.T) {
	t.Parallel()
	for page, prepare := range pages {
		for _, shell := range shells {
			t.Run(page+"/"+shell, func(t *testing.T) {
				t.Parallel()
				dir, port := t.TempDir(), proctest.Ports(t)
				metrics := "127.0.0.1:" + strconv.Itoa(port)
				h := startServer(t, true, "--listen-metrics", metrics)
				write := func(name, text string) {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
				}
				write("flightd.py", read(t, "../python/flightd.py"))
				x := openTerminal(t, shell, dir, append(h.credentials(), "FLIGHTD_ADDR="+h.address(), "HOME="+dir, "XDG_STATE_HOME="+dir,
					"PATH="+filepath.Dir(binaries.flightd)+":"+os.Getenv("PATH"))...)
				if shell == "zsh" {
					x.run("setopt interactivecomments") // in docs/, a comment may follow a command
				}
				blocks := findBlocks(t, "../../"+page)
				if prepare != nil {
					prepare(t, x, blocks)
				}
				replaced := []string{"/etc/", dir + "/etc/", "/var/lib/", dir + "/var/lib/", "127.0.0.1:9464", metrics}
				for i, of := range []string{"4242", "7431", "7433", "7435", "7443", "7441", "7442", "7421"} {
					replaced = append(replaced, ":"+of, ":"+strconv.Itoa(port+2+2*i), " "+of, " "+strconv.Itoa(port+2+2*i))
				}
				system := strings.NewReplacer(replaced...)
				count := 0
				for _, b := range blocks {
					switch {
					case b.marker == "file":
						write(b.name, system.Replace(b.text))
					case b.marker == "run" && b.name == "" && b.language == "console":
						for _, c := range readConsole(system.Replace(b.text)) {
							c.requireOutput(t, x.run(c.command))
						}
						count++
					case b.marker == "run" && b.name == "":
						runBlock(t, x, system.Replace(b.text))
						count++
					}
				}
				require.NotZero(t, count, "no block of %s runs", page)
			})
		}
	}
}

// TestDocs_EveryCommandIsMarked: no block of commands, in any page of the repository, is forgotten. A page with blocks
// that run is in the table of its test.
func TestDocs_EveryCommandIsMarked(t *testing.T) {
	root := strings.TrimSpace(output(t, ".", "git", "rev-parse", "--show-toplevel"))
	for _, file := range strings.Fields(output(t, root, "git", "ls-files", "*.md")) {
		for _, b := range findBlocks(t, filepath.Join(root, file)) {
			if b.marker == "" {
				require.NotContains(t, []string{"sh", "bash", "zsh", "shell", "console"}, b.language, "%s: mark this block with <!-- run --> or <!-- not run: REASON -->:\n%s", file, b.text)
				continue
			}
			switch {
			case b.marker == "not run":
				require.NotEmpty(t, b.name, "%s: the reason is missing:\n%s", file, b.text)
			case b.name == "" || b.marker == "file":
				require.Contains(t, pages, file, "add the page to pages")
			default:
				require.Contains(t, readmes, "../../"+file, "add the file to readmes")
			}
		}
	}
}
