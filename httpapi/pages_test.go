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
	"github.com/flightd/flightd/httpapi/wire"
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

// Each code has a page in three formats. Each page has the whole row of the table and an example, whose type is the
// path of the page. The HTML loads no other resource.
func TestProblemPages(t *testing.T) {
	for _, c := range wire.Classes() {
		path := problemPath + string(c.Code)
		markdown := getPage(t, path, "").Body.String()
		page := getPage(t, path, "text/html")
		require.Contains(t, page.Header().Get("Content-Security-Policy"), "default-src 'none'")
		text := html.UnescapeString(page.Body.String())
		for _, says := range []string{string(c.Code), strconv.Itoa(c.Status), c.Title, c.Description, c.Hint, pageOf(c).RetryAdvice(), pageOf(c).Sample()} {
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
		require.NotContains(t, c.Description, "changes nothing", "RetryAdvice states that already")
		require.Equal(t, c.Retryable || c.Status == http.StatusConflict, example.RetryAfterMS > 0)
	}
}

// Hints contain the commands to run, with the key filled in.
func TestHintsCanBeFollowed(t *testing.T) {
	p := problemOf(&effect.InDoubt{Key: flight.MustKey("default/charge/order-42"), Cause: "why"})
	require.Contains(t, p.Hint, "flightd doubt resolve default/charge/order-42 --reason WHY --happened")
	require.NotContains(t, p.Hint, "KEY")
	p = problemOf(&effect.Conflict{Key: flight.MustKey("default/charge/order-42")})
	require.Contains(t, p.Hint, "fingerprint none")
}

// The answer for an unknown path says where the paths are listed.
func TestNothingAtThisPath(t *testing.T) {
	w := httptest.NewRecorder()
	New(Config{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Contains(t, w.Body.String(), `"hint":"/openapi.json describes every path`)
}

// Each constant of type Code is in the table, and each code of the table has a constant.
func TestEveryCodeIsInTheTable(t *testing.T) {
	named := map[string]bool{}
	for _, file := range goFiles(t, "wire") {
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
	require.Empty(t, named, "these codes are not in the table of classes")
}

// Other packages name codes as strings. Each of them is known here and returned unchanged.
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
		require.Equal(t, code, string(p.Code), "an unknown code, or one that is not returned")
	}
}

// codesOf collects the codes in Unavailable{Code: "…"}.
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
		got := negotiate([]string{accept}, typeMarkdown, typeHTML, wire.TypeJSON)
		require.Equal(t, map[string]string{"md": typeMarkdown, "html": typeHTML, "json": wire.TypeJSON}[want], got, accept)
	}
}
