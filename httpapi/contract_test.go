package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// The fake passes the same scripts as a real node (TestContract of package node), so client tests can rely on it. It
// skips the scripts on retention, which needs a clock that advances by itself, on sagas, which need a driver, and on notifications, which
// need a sender.
func TestContract(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) {
		c.Callers.LoopbackOnly, c.Restores = true, noRestores{}
		c.Cluster.State = func() wire.Cluster {
			return wire.Cluster{Leader: "lone", Nodes: []wire.ClusterNode{{Name: "lone", Role: wire.RoleLeader}}}
		}
	})
	files, err := filepath.Glob("testdata/contract/*.http")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, file := range files {
		if name := filepath.Base(file); name == "retention.http" || name == "sagas.http" || name == "notify.http" {
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

// noRestores is a ledger that was never restored, and whose backup is empty.
type noRestores struct{}

func (noRestores) Backup(_ context.Context, w io.Writer) error {
	_, err := w.Write(nil)
	return err
}
func (noRestores) Asked(string, int) ([]string, int) { return []string{}, 0 }
