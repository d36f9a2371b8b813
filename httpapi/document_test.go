package httpapi_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapi/openapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

var update = flag.Bool("update", false, "update docs/openapi.json")

// The generated document in docs is that of the present code.
func TestDocsAreCurrent(t *testing.T) {
	want, err := httpapi.Document()
	require.NoError(t, err)
	path := filepath.Join("..", "docs", "openapi.json")
	if *update {
		require.NoError(t, os.WriteFile(path, want, 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err, "run make docs")
	require.Empty(t, firstDifference(string(want), string(have)), "docs/openapi.json is outdated: run make docs")
}

// The guide for people who write a client names every route and every code, and no other route.
func TestGuideNamesRoutesAndCodes(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "docs", "http.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(guide), "## Routes\n")
	require.True(t, found)
	var named []string
	for _, match := range regexp.MustCompile("`([A-Z]+ /[^`]*)`").FindAllStringSubmatch(table, -1) {
		named = append(named, match[1])
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(httpapi.Routes())), named)
	_, problems, found := strings.Cut(string(guide), "## Problems\n")
	require.True(t, found)
	for _, class := range wire.Classes() {
		require.Contains(t, problems, "`"+string(class.Code)+"`")
	}
}

// firstDifference describes the first difference of two texts, or "" if they are equal.
func firstDifference(want, have string) string {
	lines := strings.Split(have, "\n")
	for i, w := range strings.Split(want, "\n") {
		if i >= len(lines) || lines[i] != w {
			return fmt.Sprintf("line %d should be: %s", i+1, w)
		}
	}
	if want != have {
		return "unexpected text at the end"
	}
	return ""
}

// checker returns a checker for the document. All tests share it.
func checker(t *testing.T) *openapitest.Checker {
	t.Helper()
	c, err := sharedChecker()
	require.NoError(t, err)
	return c
}

var sharedChecker = sync.OnceValues(func() (*openapitest.Checker, error) {
	document, err := httpapi.Document()
	if err != nil {
		return nil, err
	}
	return openapitest.New(document)
})

// The server serves the same document as the repository has.
func TestOpenAPI(t *testing.T) {
	d := newTestServer(t)
	r := d.get("/openapi.json")
	want, err := httpapi.Document()
	require.NoError(t, err)
	require.Equal(t, string(want), string(r.body))
}
