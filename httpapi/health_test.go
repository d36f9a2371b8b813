package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// TestReady_TellsAboutTheNodeOnlyWhenAsked: health checks come every second, so they must not compute the description.
func TestReady_TellsAboutTheNodeOnlyWhenAsked(t *testing.T) {
	asked := 0
	door := httpapi.New(httpapi.Config{
		Ready: func(context.Context) wire.Ready { return wire.Ready{Ready: true} },
		NodeInfo: func(context.Context) *wire.Node {
			asked++
			at := wire.Time{Time: time.UnixMilli(1_700_000_000_123)}
			return &wire.Node{Time: at, LedgerTime: at, Data: "/d", Etcd: &wire.Etcd{Version: "3.7.3", Revision: 7}}
		},
	})
	get := func(path string) string {
		w := httptest.NewRecorder()
		door.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	require.JSONEq(t, `{"ready":true}`, get("/readyz"))
	require.Zero(t, asked)
	require.JSONEq(t, `{"ready":true,"node":{"time":"2023-11-14T22:13:20.123Z","ledger_time":"2023-11-14T22:13:20.123Z","data":"/d",
		"etcd":{"version":"3.7.3","revision":7,"compacted":0,"size":0,"in_use":0,"quota":0}}}`, get("/readyz?verbose"))
}
