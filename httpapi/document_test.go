package httpapi_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapi/openapitest"
)

var update = flag.Bool("update", false, "update docs/openapi.json and docs/http.md")

// The generated documents in docs are those of the present code.
func TestDocsAreCurrent(t *testing.T) {
	for name, make := range map[string]func() ([]byte, error){"openapi.json": httpapi.Document, "http.md": httpapi.Reference} {
		want, err := make()
		require.NoError(t, err)
		path := filepath.Join("..", "docs", name)
		if *update {
			require.NoError(t, os.WriteFile(path, want, 0o644))
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err, "run make docs")
		require.Empty(t, firstDifference(string(want), string(have)), "docs/%s is outdated: run make docs", name)
	}
}

// firstDifference describes the first difference of two texts; "" if they are equal.
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
