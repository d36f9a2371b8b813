package httpapi

import (
	"encoding/json"
	"go/ast"
	"html"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

func getPage(t *testing.T, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	New(Config{}).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	return w
}

// Every code of the table has its page in three forms, each of which says all that the table does and shows a problem
// whose type leads back to the page. Nothing on it is fetched from anywhere.
func TestProblemPages(t *testing.T) {
	for _, c := range wire.Classes() {
		path := problemPath + string(c.Code)
		markdown := getPage(t, path, "").Body.String()
		page := getPage(t, path, "text/html")
		require.Contains(t, page.Header().Get("Content-Security-Policy"), "default-src 'none'")
		text := html.UnescapeString(page.Body.String())
		for _, says := range []string{string(c.Code), strconv.Itoa(c.Status), c.Title, c.About, c.Hint, pageOf(c).Again(), pageOf(c).Sample()} {
			require.Contains(t, markdown, says)
			require.Contains(t, text, says)
		}
		for _, fetched := range []string{"src=", "href=", "@import", "url(", "<script"} {
			require.NotContains(t, page.Body.String(), fetched)
		}
		var read wire.ProblemPage
		require.NoError(t, json.Unmarshal(getPage(t, path, "application/json").Body.Bytes(), &read))
		var example wire.Problem
		require.NoError(t, json.Unmarshal(read.Example, &example))
		require.Equal(t, c.Code, example.Code)
		require.Equal(t, path, example.Type)
		require.Equal(t, c.Status, example.Status)
		require.Equal(t, c.Retryable, example.Retryable)
		require.NotContains(t, c.About, "changes nothing", "the page says that of itself")
		require.Equal(t, c.Retryable || c.Status == http.StatusConflict, example.RetryAfterMS > 0)
	}
}

// What is to be typed stands there as it is typed, and what is to be left out says how.
func TestHintsCanBeFollowed(t *testing.T) {
	p := problemOf(&effect.InDoubt{Key: flight.MustKey("default/charge/order-42"), Cause: "why"})
	require.Contains(t, p.Hint, "flightd doubt resolve default/charge/order-42 --reason WHY --happened")
	require.NotContains(t, p.Hint, "KEY")
	p = problemOf(&effect.Conflict{Key: flight.MustKey("default/charge/order-42")})
	require.Contains(t, p.Hint, "fingerprint none")
}

// Whoever opens the server's address without knowing a path is told where the paths are.
func TestNothingAtThisPath(t *testing.T) {
	w := httptest.NewRecorder()
	New(Config{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), `"hint":"/openapi.json describes every path`)
}

// Every code that there is a name for is in the table, and so has its page, and the other way round.
func TestEveryCodeIsInTheTable(t *testing.T) {
	named := map[string]bool{}
	for _, file := range goFiles(t, "../internal/wire") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
				for _, v := range spec.Values {
					named[v.(*ast.BasicLit).Value] = true
				}
			}
			return true
		})
	}
	for _, c := range wire.Classes() {
		require.True(t, named[strconv.Quote(string(c.Code))], "%s has no constant", c.Code)
		delete(named, strconv.Quote(string(c.Code)))
	}
	require.Empty(t, named, "these codes are not in the table of classes, and so have no page")
}

// Other packages name codes as text. This interface knows each of them and passes it on.
func TestCodesOfOtherPackages(t *testing.T) {
	found := map[string]bool{}
	for _, folder := range []string{"../executor", "../remote", "../internal/answer", "../clusterstore", "../lease", "../node"} {
		for _, file := range goFiles(t, folder) {
			codesOf(file, found)
		}
	}
	require.NotEmpty(t, found)
	for code := range found {
		p := problemOf(&effect.Unavailable{Code: code})
		require.Equal(t, code, string(p.Code), "a code that this interface does not know, or does not pass on")
	}
}

// codesOf finds Unavailable{Code: "…"}.
func codesOf(file *ast.File, found map[string]bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if kind, ok := literal.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "Unavailable" {
			return true
		}
		for _, e := range literal.Elts {
			if field, ok := e.(*ast.KeyValueExpr); ok && field.Key.(*ast.Ident).Name == "Code" {
				if text, ok := field.Value.(*ast.BasicLit); ok {
					code, _ := strconv.Unquote(text.Value)
					found[code] = true
				}
			}
		}
		return true
	})
}

func TestAccepted(t *testing.T) {
	for accept, want := range map[string]string{
		"": "md", "*/*": "md", "text/*": "md", "text/html": "html", "application/json": "json", "application/*": "json",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "html",
		"text/html;q=0.5, application/json;q=0.9":                         "json",
		"application/json;q=0, text/html;q=0.1":                           "html",
		"image/png":                                                       "md",
		"TEXT/HTML ; charset=utf-8 ; q=1":                                 "html",
		"text/html;q=7":                                                   "md",
		";;;,,=q":                                                         "md",
	} {
		got := accepted([]string{accept}, typeMarkdown, typeHTML, wire.TypeJSON)
		require.Equal(t, map[string]string{"md": typeMarkdown, "html": typeHTML, "json": wire.TypeJSON}[want], got, accept)
	}
}
