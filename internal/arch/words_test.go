package arch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// retired has the words that were replaced by the terms of docs/glossary.md, and the terms. Whole words are compared, and parts of
// identifiers: "desk" is found in deskClose and remote_desk, and not in desktop.
var retired = map[string]string{
	"desk":        "lessor, or remote service",
	"guest":       "remote session",
	"tally":       "duplicate statistics",
	"tallies":     "duplicate counters",
	"stray":       "orphan claim",
	"strays":      "orphan claims",
	"patience":    "time-out",
	"crew":        "in-flight counter",
	"neighbour":   "other package, or other node",
	"forsake":     "abandon",
	"unsay":       "abandon",
	"bereft":      "without its holder",
	"whereabouts": "location",
	"conceive":    "prepare",
	"unborn":      "starting",
	"heeded":      "not ignored",
	"misled":      "unknown topic",
	"burial":      "revocation",
	"aloft":       "running",
	"turnstile":   "keyed mutex",
	"verdict":     "verification, or finding",
	"look_tries":  "verify_attempts",
	"put_aside":   "quarantined",
	"Flight-Id":   "Flightd-Flight-Id",
	"Flightd-As":  "Flightd-Actor",
	"whoever":     "the caller, or another noun",
}

// exempt are the files that list the retired words, and texts of others.
var exempt = []string{"internal/arch/words_test.go", "docs/decisions/0022-vocabulary-and-libraries.md", "go.sum", "LICENSE"}

// parts splits a text into words as a reader sees them: by what is no letter, and within identifiers by case.
var parts = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// TestWords_RetiredOnesAreGone fails on a retired word in code, comments, documents, clients, golden files and settings.
func TestWords_RetiredOnesAreGone(t *testing.T) {
	var found []string
	for name, text := range repository(t) {
		if slices.Contains(exempt, name) {
			continue
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			for word, now := range retired {
				var hit bool
				if strings.ContainsAny(word, "_-") {
					hit = containsWord(line, word)
				} else {
					hit = slices.ContainsFunc(parts.FindAllString(line, -1), func(part string) bool { return strings.EqualFold(part, word) })
				}
				if hit {
					found = append(found, fmt.Sprintf("%s:%d: %q is now: %s", name, number, word, now))
				}
			}
		}
	}
	slices.Sort(found)
	require.Empty(t, found)
}

// containsWord reports whether the line has the word with no letter, hyphen or underscore beside it.
func containsWord(line, word string) bool {
	for at := 0; ; {
		i := strings.Index(line[at:], word)
		if i < 0 {
			return false
		}
		from, to := at+i, at+i+len(word)
		const beside = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"
		if (from == 0 || !strings.ContainsRune(beside, rune(line[from-1]))) && (to == len(line) || !strings.ContainsRune(beside, rune(line[to]))) {
			return true
		}
		at = to
	}
}
