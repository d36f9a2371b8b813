package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// TestMan_HasEveryCommandFlagAndCode: every command has a page with its flags, and the page flightd.1 has exit codes
// and settings.
func TestMan_HasEveryCommandFlagAndCode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	r := flightd(nil, "man", dir)
	require.Empty(t, r.want(t, cli.ExitOK, "", "").out+r.err)
	page := func(path string) string {
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(path, " ", "-")+".1"))
		require.NoError(t, err)
		return strings.ReplaceAll(string(text), `\-`, "-")
	}
	for _, c := range allCommands(t) {
		text := page(c.CommandPath())
		require.Contains(t, text, `"Nov 2023" "flightd `+buildVersion()+`" "User Commands"`, "the date of SOURCE_DATE_EPOCH")
		require.NotContains(t, text, "Auto generated")
		for line := range strings.Lines(c.LocalFlags().FlagUsages()) {
			if flag := strings.Fields(line)[0]; strings.HasPrefix(flag, "--") {
				require.Contains(t, text, `\fB`+flag+`\fP`, c.CommandPath())
			}
		}
	}
	root := page("flightd")
	for _, e := range cli.ExitCodes() {
		require.Contains(t, root, e.Means)
	}
	for _, s := range cli.AllSettings() {
		require.Contains(t, root, s.Env)
	}
	require.Contains(t, page("flightd doubt resolve"), "\n  --did-not-happen  the effect", "lines of a table are not joined")
	require.Equal(t, cli.ExitUsage, flightd(nil, "man").code)
}
