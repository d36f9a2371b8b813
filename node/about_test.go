package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// About returns the exact compacted revision: 0 before the first compaction, then the revision of the last one.
func TestAboutTellsHowFarEtcdIsCompacted(t *testing.T) {
	t.Parallel()
	in := open(t, t.TempDir(), func(tune *tuning) { tune.compactor.Interval = time.Hour }) // no compaction by the node
	before := monitor{in.node}.about(t.Context())
	require.NotNil(t, before.Etcd, "before: %+v", before.Etcd)
	require.EqualValues(t, 0, before.Etcd.Compacted, "before: %+v", before.Etcd)
	require.NotEmpty(t, before.Etcd.Version, "before: %+v", before.Etcd)
	require.Empty(t, before.Etcd.Problem, "before: %+v", before.Etcd)
	for range 5 {
		_, err := in.etcd.client.Put(t.Context(), "k", "v")
		require.NoError(t, err)
	}
	revision := before.Etcd.Revision + 3
	_, err := in.etcd.client.Compact(t.Context(), revision)
	require.NoError(t, err)
	after := monitor{in.node}.about(t.Context())
	require.NotNil(t, after.Etcd, "after a compaction at %d: %+v", revision, after.Etcd)
	require.Equal(t, revision, after.Etcd.Compacted, "after a compaction at %d: %+v", revision, after.Etcd)
	require.False(t, after.Etcd.Revision < revision, "after a compaction at %d: %+v", revision, after.Etcd)
	require.EqualValues(t, etcdQuota, after.Etcd.Quota, "after a compaction at %d: %+v", revision, after.Etcd)
	d := after.Time.Sub(after.LedgerTime.Time).Abs()
	require.LessOrEqual(t, d, 10*time.Second, "the ledger's time is %v away from the clock", d)
	aside := filepath.Join(in.cfg.Data, "ledger", "spool", strings.Repeat("0", 32)+"-0.report.damaged")
	err = os.WriteFile(aside, nil, 0o600)
	require.NoError(t, err)
	now := monitor{in.node}.about(t.Context())
	require.Equal(t, (wire.Spool{}), *after.Spool, "the spool is %+v, and with a quarantined report %+v", after.Spool, now.Spool)
	require.Equal(t, (wire.Spool{Quarantined: 1}), *now.Spool, "the spool is %+v, and with a quarantined report %+v", after.Spool, now.Spool)
	require.Equal(t, in.cfg.Data, after.Data, "data is %q", after.Data)
}
