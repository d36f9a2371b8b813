package arch

import (
	"bytes"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var updateFigures = flag.Bool("update", false, "write today's figures to testdata/figures.txt, if none of them rose")

// maxColumns is the longest line of new code, with four columns for a tab.
const maxColumns = 140

// The figures that may only fall, for each package, tests included: long lines, and the patterns of comments that stop a native reader.
var patterns = []struct {
	name  string
	match *regexp.Regexp
}{
	{"what", regexp.MustCompile(`(?i)\bwhat\b`)}, // "what became of each" is "the result of each job"
	{"says", regexp.MustCompile(`(?i)\b(says?|said|tells?|told)\b`)},
	{"whose", regexp.MustCompile(`(?i)\b(whose|of which)\b`)},
	{"that of", regexp.MustCompile(`(?i)\b((that|those) of|the ones? (that|who))\b`)},
}

const figuresFile = "testdata/figures.txt"

// figuresOf counts what text, a Go file, adds to the figures of its package.
func figuresOf(text string) (map[string]int, error) {
	counts := make(map[string]int)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if utf8.RuneCountInString(line)+3*strings.Count(line, "\t") > maxColumns {
			counts["long"]++
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range f.Comments {
		for sentence := range strings.SplitAfterSeq(group.Text(), ". ") {
			for _, p := range patterns {
				if p.name == "what" && strings.HasSuffix(strings.TrimSpace(sentence), "?") {
					continue // a question
				}
				counts[p.name] += len(p.match.FindAllString(sentence, -1))
			}
		}
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return counts, nil
}

// readFigures returns the figures by package.
func readFigures(text string) (map[string]map[string]int, error) {
	all := make(map[string]map[string]int)
	for line := range strings.Lines(text) {
		pkg, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		all[pkg] = make(map[string]int)
		for figure := range strings.SplitSeq(rest, ",") {
			var n int
			name, value, _ := strings.Cut(strings.TrimSpace(figure), "=")
			if _, err := fmt.Sscan(value, &n); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", pkg, figure, err)
			}
			all[pkg][name] = n
		}
	}
	return all, nil
}

func writeFigures(all map[string]map[string]int) []byte {
	var b bytes.Buffer
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		separator := ":"
		for _, name := range slices.Sorted(maps.Keys(all[pkg])) {
			if separator == ":" {
				b.WriteString(pkg)
			}
			fmt.Fprintf(&b, "%s %s=%d", separator, name, all[pkg][name])
			separator = ","
		}
		if separator == "," {
			b.WriteString("\n")
		}
	}
	return b.Bytes()
}

// TestFigures_OnlyFall fails on a package with more long lines, or with more of a pattern in its comments, than testdata/figures.txt allows,
// and on a figure there that is more than a tenth, and more than 2, too high. A package that is not listed has none.
func TestFigures_OnlyFall(t *testing.T) {
	is := make(map[string]map[string]int)
	for name, text := range repository(t) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		pkg := path.Dir(name)
		if is[pkg] == nil {
			is[pkg] = make(map[string]int)
		}
		counts, err := figuresOf(text)
		require.NoError(t, err, name)
		for figure, n := range counts {
			is[pkg][figure] += n
		}
	}
	text, err := os.ReadFile(figuresFile)
	require.NoError(t, err)
	most, err := readFigures(string(text))
	require.NoError(t, err)
	var rose, fell []string
	for pkg, figures := range is {
		for name, n := range figures {
			if n > most[pkg][name] {
				rose = append(rose, fmt.Sprintf("%s: %s: %d, at most %d", pkg, name, n, most[pkg][name]))
			}
		}
	}
	for pkg, figures := range most {
		for name, n := range figures {
			if n-is[pkg][name] > max(2, n/10) {
				fell = append(fell, fmt.Sprintf("%s: %s: %d instead of %d", pkg, name, is[pkg][name], n))
			}
		}
	}
	slices.Sort(rose)
	slices.Sort(fell)
	require.Empty(t, rose, "shorten the line, or name the subject with a noun (CONTRIBUTING.md)")
	if *updateFigures {
		require.NoError(t, os.WriteFile(figuresFile, writeFigures(is), 0o644))
		return
	}
	require.Empty(t, fell, "keep what was won: go test ./internal/arch -run TestFigures -update")
}

func TestFigures_OfAFile(t *testing.T) {
	long := "\tx := 1 // " + strings.Repeat("é", maxColumns-4-len("x := 1 // ")) + "\n"
	counts, err := figuresOf("// Package x says what it does, and what is it? A type whose name is that of another.\npackage x\n\nfunc f() {\n" + long + "\t_ = \"whose\"\n}\n")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"says": 1, "what": 2, "whose": 1, "that of": 1}, counts, "code is no prose, and a letter is one column")
	counts, err = figuresOf("package x\n\nfunc f() {\n\t" + long + "}\n\n// What is this?\n")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"long": 1}, counts)
	all, err := readFigures("a: long=3, that of=2\nb/c: what=1\n")
	require.NoError(t, err)
	require.Equal(t, map[string]map[string]int{"a": {"long": 3, "that of": 2}, "b/c": {"what": 1}}, all)
	require.Equal(t, "a: long=3, that of=2\nb/c: what=1\n", string(writeFigures(all)))
}
