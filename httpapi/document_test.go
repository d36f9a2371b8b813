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
	"github.com/flightd/flightd/httpapi/openapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

var update = flag.Bool("update", false, "update docs/openapi.json")

// generateDocument returns the OpenAPI document of the present code. An error means that the tables do not match the code.
func generateDocument() ([]byte, error) {
	b := &Spec{Title: "flightd", Version: "v1", Summary: "One key, one flight, one receipt",
		About: preface, Tags: tags(), Operations: operations(), Problems: httpapi.ProblemPages()}
	routes := httpapi.Routes()
	for i := range b.Operations {
		o := &b.Operations[i]
		need := routes[o.Pattern]
		if o.Public, o.Verbs = need.Public, need.Verbs.Names(); !need.Public {
			o.Problems = codes(o.Problems, wire.Unauthenticated)
		}
	}
	doc, err := Build(b)
	if err != nil {
		return nil, err
	}
	return doc.JSON()
}

const preface = `flightd performs each business intent once. Callers, retries and restarts present the same key. At most one attempt at a time may perform the effect. The first outcome is stored as a receipt, and every caller gets that receipt.

flightd reads requests strictly: it rejects unknown fields, duplicate fields, wrong types and trailing data, and a rejected request has changed nothing. A null field counts as missing, except ` + "`body`" + `. Later versions of v1 may add fields to answers and codes to problems, so your client must ignore what it does not know.

A server that other machines can reach needs a token with each request: ` + "`Authorization: Bearer fltd_…`" + `. A token has verbs, and one namespace or all of them. A request without a valid token is answered ` + "`unauthenticated`" + `; one that the verbs or the namespace do not allow, ` + "`forbidden`" + `. A token of one namespace gets the same answer for a flight of another namespace and for a flight that does not exist. The session ids that you get belong to the namespace and the name of your token.

Times are RFC 3339 in UTC with milliseconds. Durations are integers, in fields that end in ` + "`_ms`" + `. The ledger has its own time, which never goes back. You set ` + "`not_after`" + ` in ledger time, as an integer, in milliseconds since 1970. Answers carry the ledger's time in the header ` + "`Flightd-Ledger-Time`" + `: get it once with ` + "`GET /version`" + `, advance it by your own monotonic clock, and correct it by later answers. Every error is a problem document (RFC 9457) with a stable ` + "`code`" + `; its ` + "`type`" + ` is the path of a page on this server.`

// The generated document in docs is that of the present code.
func TestDocsAreCurrent(t *testing.T) {
	want, err := generateDocument()
	require.NoError(t, err)
	path := filepath.Join("..", "docs", "openapi.json")
	if *update {
		require.NoError(t, os.WriteFile(path, want, 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err, "run make docs")
	require.Empty(t, firstDifference(string(want), string(have)), "docs/openapi.json is outdated: run make docs")
}

// Each registered route is described, and each described route is registered.
func TestEveryRouteIsDescribed(t *testing.T) {
	described, ids := map[string]bool{}, map[string]bool{}
	for _, o := range operations() {
		require.False(t, described[o.Pattern], "%s is described twice", o.Pattern)
		require.False(t, ids[o.ID], "the ID %s is used twice", o.ID)
		described[o.Pattern], ids[o.ID] = true, true
	}
	registered := httpapi.Routes()
	for pattern := range registered {
		require.True(t, described[pattern], "the route %q is registered in routes() but not described: add it to one of the tables behind operations(), "+
			"in httpapi/openapi_operations_test.go and its siblings, and run make docs", pattern)
	}
	for pattern := range described {
		require.Contains(t, registered, pattern, "the route %q is described in operations() but not registered in routes()", pattern)
	}
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
	document, err := generateDocument()
	if err != nil {
		return nil, err
	}
	return openapitest.New(document)
})

// The server serves the same document as the repository has.
func TestOpenAPI(t *testing.T) {
	d := newTestServer(t)
	r := d.get("/openapi.json")
	want, err := generateDocument()
	require.NoError(t, err)
	require.Equal(t, string(want), string(r.body))
}
