package node

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
	"github.com/flightd/flightd/httpapi/openapitest"
)

// TestContract replays the conversations of httpapi/testdata/contract with a real node and validates every request and
// answer against the OpenAPI document. Together they contain every successful answer.
func TestContract(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../httpapi/testdata/contract/*.http")
	require.NoError(t, err, "there are no conversations: %v", err)
	require.NotEqual(t, 0, len(files), "there are no conversations: %v", err)
	checker, err := openapitest.New(docs.OpenAPI)
	require.NoError(t, err)
	in := open(t, t.TempDir(), func(u *tuning) { u.expireEvery = 100 * time.Millisecond })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		scripts, err := openapitest.Parse(string(text))
		require.NoError(t, err, "%s: %v", file, err)
		for i := range scripts {
			t.Run(filepath.Base(file)+"/"+scripts[i].Title, func(t *testing.T) {
				err := scripts[i].Run(ctx, client, in.server.url(), checker)
				require.NoError(t, err, "%s: %v", file, err)
			})
		}
	}
	for _, answer := range checker.Unseen() {
		if answer != "ready 503" && answer != "replaceNode 200" { // a healthy node, and a lone one, do not return them
			t.Errorf("no conversation has the answer %s", answer)
		}
	}
}
