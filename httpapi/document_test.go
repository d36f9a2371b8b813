package httpapi_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

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

// checker returns a checker for the document. All tests share it.
func checker(t *testing.T) *openapitest.Checker {
	t.Helper()
	c, err := sharedChecker()
	require.NoError(t, err)
	return c
}

var sharedChecker = sync.OnceValues(func() (*openapitest.Checker, error) { return openapitest.New(docs.OpenAPI) })

// The server serves the same document as the repository has.
func TestOpenAPI(t *testing.T) {
	require.Equal(t, string(docs.OpenAPI), string(newTestServer(t).get("/openapi.json").body))
}
