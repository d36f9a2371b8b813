package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	gometrics "github.com/hashicorp/go-metrics"
	"github.com/stretchr/testify/require"
)

// TestRaftLibraryMetrics: counts, sums and newest values have the library's names, and nothing is collected after the
// release.
func TestRaftLibraryMetrics(t *testing.T) {
	m := New(Config{})
	read := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/raft", nil))
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	require.Empty(t, read())
	release := m.CollectRaft()
	for range 3 {
		gometrics.IncrCounter([]string{"raft", "apply"}, 2)
		gometrics.AddSampleWithLabels([]string{"raft", "leader", "lastContact"}, 4, []gometrics.Label{{Name: "peer_id", Value: "secretpeer"}})
		gometrics.SetGauge([]string{"raft", "peers"}, 5)
	}
	gometrics.MeasureSince([]string{"raft", "commitTime"}, time.Now().Add(-time.Second))
	release()
	gometrics.IncrCounter([]string{"raft", "apply"}, 100)
	text := read()
	require.Contains(t, text, "raft_apply_total 6\n")
	require.Contains(t, text, "raft_leader_lastcontact_count 3\n")
	require.Contains(t, text, "raft_leader_lastcontact_sum 12\n")
	require.Contains(t, text, "raft_peers 5\n")
	require.Regexp(t, `raft_committime_sum 1\d{3}`, text)
	require.NotContains(t, text, "secretpeer")
}
