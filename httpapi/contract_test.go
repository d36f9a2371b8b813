package httpapi_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapi/openapitest"
)

// The world of these tests, which clients are tested with, too, passes the exam that a real node passes (TestContract of
// package node), but for the end of retentions, which comes there only when a test says so.
func TestContract(t *testing.T) {
	d := newDoor(t, func(c *httpapi.Config) { c.Dev = true })
	files, err := filepath.Glob("testdata/contract/*.http")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, file := range files {
		if filepath.Base(file) == "retention.http" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		scripts, err := openapitest.Parse(string(text))
		require.NoError(t, err, file)
		for i := range scripts {
			t.Run(filepath.Base(file)+"/"+scripts[i].Title, func(t *testing.T) {
				require.NoError(t, scripts[i].Run(ctx, http.DefaultClient, d.url, nil))
			})
		}
	}
}
