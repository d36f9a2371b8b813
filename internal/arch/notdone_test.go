package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// guarantees is the document that lists each conclusion "the effect was not done" of flightd and its clients, with its
// proof.
const guarantees = "../../docs/guarantees.md"

const (
	pythonClient     = "../../clients/python/flightd.py"
	typescriptClient = "../../clients/typescript/flightd.ts"
)

// TestNotDone_EveryConclusionIsListed compares the table with the code of all languages: the table lists exactly the
// functions that conclude that an effect was not done.
func TestNotDone_EveryConclusionIsListed(t *testing.T) {
	listed := make(map[string][]string) // by language
	for _, row := range tableUnder(t, "## Not done, and its proof") {
		require.Len(t, row, 5, "a row needs a conclusion, its proof, and the functions of three languages: %v", row)
		require.NotEmpty(t, row[1], "row without a proof: %s", row[0])
		for i, language := range []string{"go", "python", "typescript"} {
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2+i], -1) {
				listed[language] = append(listed[language], name[1])
			}
		}
	}
	for language, found := range map[string][]string{
		"go": goConclusions(t),
		"python": textConclusions(t, pythonClient, `^ *(?:async )?def (\w+)\(`,
			`raise NotDone\(|return "not_done"|outcome = "not_done"|flights:abandon`),
		"typescript": textConclusions(t, typescriptClient, `^ *(?:export |private |async |static |function )*(\w+)(?:<[^>]*>)?\(.*\{$`,
			`throw new NotDone\(|\? "not_done"|outcome: "not_done"|flights:abandon`),
	} {
		want := slices.Compact(slices.Sorted(slices.Values(listed[language])))
		require.Equal(t, want, found, "%s: the table in docs/guarantees.md (first) and the code", language)
	}
}

// TestNotDone_StatusesAreTheSameEverywhere compares the table of HTTP answers with the classifiers of all languages.
func TestNotDone_StatusesAreTheSameEverywhere(t *testing.T) {
	listed := make(map[string][]int) // by outcome
	for _, row := range tableUnder(t, "HTTP answers are read so") {
		outcome := strings.Trim(row[1], "`")
		for _, status := range regexp.MustCompile(`\b\d{3}\b`).FindAllString(strings.Split(row[0], "3xx")[0], -1) {
			n, _ := strconv.Atoi(status)
			listed[outcome] = append(listed[outcome], n)
		}
	}
	for status := 100; status < 600; status++ {
		want := flight.OutcomeUnknown
		switch {
		case status/100 == 2:
			want = flight.OutcomeSucceeded
		case slices.Contains(listed["refused"], status):
			want = flight.OutcomeRefused
		case slices.Contains(listed["not_done"], status):
			want = flight.OutcomeNotDone
		}
		require.Equal(t, want, flight.HTTPOutcome(status, false), status)
		if status/100 == 3 {
			want = flight.OutcomeNotDone
		}
		require.Equal(t, want, flight.HTTPOutcome(status, true), status)
	}
	for file, pattern := range map[string]string{
		pythonClient:     `NOT_DONE_STATUSES = frozenset\(\(([^)]*)\)\)`,
		typescriptClient: `NOT_DONE_STATUSES: ReadonlySet<number> = new Set\(\[([^\]]*)\]\)`,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		match := regexp.MustCompile(pattern).FindSubmatch(text)
		require.NotNil(t, match, file)
		var own []int
		for _, status := range strings.Split(string(match[1]), ",") {
			n, err := strconv.Atoi(strings.TrimSpace(status))
			require.NoError(t, err)
			own = append(own, n)
		}
		require.ElementsMatch(t, listed["not_done"], own, file)
	}
}

// tableUnder returns the rows of the first table after the line with the given beginning.
func tableUnder(t *testing.T, begin string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(guarantees)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+begin)
	require.True(t, found, begin)
	for line := range strings.Lines(rest) {
		switch {
		case strings.HasPrefix(line, "|"):
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		case len(rows) > 0:
			return rows[2:] // without the header
		}
	}
	return rows[2:]
}

// goConclusions finds the Go functions that return the outcome not_done, mark an error so, or abandon an open.
func goConclusions(t *testing.T) (found []string) {
	t.Helper()
	for _, folder := range []string{"flight", "effect", "internal/runner", "executor", "remote", "client", "cmd/flightd/internal/exec"} {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, decl := range parsed.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && concludes(f.Body) {
					found = append(found, folder+"."+funcName(f))
				}
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(found)))
}

func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return fmt.Sprint(of, ".", f.Name.Name)
}

// concludes reports whether a function uses the outcome, the mark or the command as a value. A comparison is no
// conclusion.
func concludes(body *ast.BlockStmt) (yes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CaseClause:
			for _, stmt := range n.Body {
				yes = yes || concludes(&ast.BlockStmt{List: []ast.Stmt{stmt}})
			}
			return false
		case *ast.BinaryExpr:
			return n.Op != token.EQL && n.Op != token.NEQ
		case *ast.Ident:
			yes = yes || n.Name == "OutcomeNotDone" || n.Name == "NotDone" || n.Name == "notDoneError" || n.Name == "NotStarted" || n.Name == "AbandonRequest"
		case *ast.CompositeLit:
			if of, ok := n.Type.(*ast.SelectorExpr); ok && of.Sel.Name == "Abandon" {
				yes = true
			}
		}
		return true
	})
	return yes
}

// textConclusions finds the functions of a Python or TypeScript file in which a line matches.
func textConclusions(t *testing.T, file, function, conclusion string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	begins, concludes := regexp.MustCompile(function), regexp.MustCompile(conclusion)
	in := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if begin := begins.FindStringSubmatch(line); begin != nil && !slices.Contains([]string{"if", "for", "while", "switch", "catch"}, begin[1]) {
			in = begin[1]
		}
		if concludes.MatchString(line) {
			found = append(found, in)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(found)))
}
