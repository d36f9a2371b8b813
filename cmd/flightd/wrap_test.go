package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestWrap_EveryHelpFitsATerminal: every help text fits into 80 columns without losing a word, except its examples.
func TestWrap_EveryHelpFitsATerminal(t *testing.T) {
	pages := [][]string{nil, {"help", "exit-codes"}, {"help", "settings"}}
	for _, command := range []string{"dev", "exec", "flights", "flights ls", "flights redact", "tail", "why", "doubt", "doubt resolve", "import", "doctor", "drill", "config", "completion bash"} {
		pages = append(pages, append(strings.Fields(command), "--help"))
	}
	for _, args := range pages {
		wide := cli(nil, args...).out
		text := wrap(wide, 80)
		require.Equal(t, strings.Join(strings.Fields(wide), " "), strings.Join(strings.Fields(text), " "), "%v has other words:\n%s", args, text)
		for part := range strings.SplitSeq(text, "\n\n") {
			for line := range strings.SplitSeq(part, "\n") {
				require.False(t, utf8.RuneCountInString(line) > 80 && !strings.Contains(part, "Examples:"), "%v is too wide: %s", args, line)
			}
		}
		require.Equal(t, wide, wrap(wide, 0), "%v is changed without need", args)
		require.Equal(t, wide, wrap(wide, 120), "%v is changed without need", args)
	}
}

func TestWrap_HangingIndent(t *testing.T) {
	const wide = "A paragraph that was written\nfor more columns than there are of them here, again.\n\nFlags:\n      --key string   names the intent of all who ask for it\n"
	const want = "A paragraph that was written for more columns than\nthere are of them here, again.\n\nFlags:\n      --key string   names the intent of all who ask\n                     for it\n"
	got := wrap(wide, 52)
	require.Equal(t, want, got, "got\n%s", got)
}
