package arch

import (
	"fmt"
	"maps"
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

// exempt are the files that list the retired words, texts of others, and the code that calls netfilter by its own words.
var exempt = []string{"internal/arch/words_test.go", "docs/decisions/0022-vocabulary-and-libraries.md", "go.sum", "LICENSE", "chaos/netbed/links_linux.go"}

// candidate finds lines that may have a retired word: the exact check of every line would take too long.
var candidate = func() *regexp.Regexp {
	words := slices.Sorted(maps.Keys(retired))
	return regexp.MustCompile("(?i)" + strings.Join(words, "|"))
}()

// parts splits a line into words as a reader sees them: at each character that is no letter, and within identifiers by case.
var parts = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// TestWords_RetiredOnesAreGone fails on a retired word in code, comments, documents, clients, golden files and settings.
func TestWords_RetiredOnesAreGone(t *testing.T) {
	var found []string
	for name, text := range repository(t) {
		if slices.Contains(exempt, name) || !candidate.MatchString(text) {
			continue
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			if !candidate.MatchString(line) {
				continue
			}
			words := parts.FindAllString(line, -1)
			for word, term := range retired {
				whole := regexp.MustCompile(`(?:^|[^\w-])` + word + `(?:$|[^\w-])`)
				if slices.ContainsFunc(words, func(part string) bool { return strings.EqualFold(part, word) }) || whole.MatchString(line) {
					found = append(found, fmt.Sprintf("%s:%d: %q is now: %s", name, number, word, term))
				}
			}
		}
	}
	slices.Sort(found)
	require.Empty(t, found)
}
