package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// openAgain opens the key of openAttempt as another caller and returns the answer.
func openAgain(t *testing.T, in *testNode, id string) (status int, body string) {
	t.Helper()
	status, body, err := post(in.server.url()+"/v1/flights:open", `{"action":"pay","id":"`+id+`","input":{"n":1},"nonce":"`+nonce("again-"+id)+`","wait_ms":0}`)
	require.NoError(t, err)
	return status, body
}

// startError starts a node that should fail and returns the error; nil: the node became ready.
func startError(t *testing.T, cfg Config) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cfg.Ready = func(Ready) { stop() }
	return Run(ctx, cfg)
}

// A start with a restored or lost etcd fails until an operator gives a reason. After that no receipt is missing, new
// keys execute, and an attempt that was open is not taken over.
func TestHazard20_ALostEtcdIsAcceptedByAPersonAlone(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	etcdDir, older := filepath.Join(data, "etcd"), filepath.Join(t.TempDir(), "older")
	in := open(t, data, nil)
	openAttempt(t, in.server.url(), "before")
	err := in.stopNode()
	require.NoError(t, err)
	err = os.CopyFS(older, os.DirFS(etcdDir))
	require.NoError(t, err)

	in = open(t, data, nil)
	paid := openAttempt(t, in.server.url(), "paid")
	status, body := report(t, in.server.url(), paid)
	require.Equal(t, http.StatusOK, status, "report: %d %s", status, body)
	running := openAttempt(t, in.server.url(), "running")
	err = in.stopNode()
	require.NoError(t, err)

	losses := []struct {
		name string
		lose func() error
	}{
		{"an older copy", func() error { return errors.Join(os.RemoveAll(etcdDir), os.CopyFS(etcdDir, os.DirFS(older))) }},
		{"nothing left", func() error { return os.RemoveAll(etcdDir) }},
	}
	for i, loss := range losses {
		err := loss.lose()
		require.NoError(t, err)
		cfg := Dev(data, "127.0.0.1:0")
		err = startError(t, cfg)
		require.ErrorIs(t, err, lease.ErrRegressed, "%s: the start returned %v", loss.name, err)
		cfg.Operator.RaiseLeaseEpoch, cfg.Operator.Actor = "the disk of etcd died", "ann"
		for start := range 2 { // the second one finds nothing to raise
			in = openConfig(t, cfg)
			openAttempt(t, in.server.url(), fmt.Sprintf("new-%d-%d", i, start))
			epoch := in.store.Header().LeaseEpoch
			require.Equal(t, uint32(i)+2, epoch, "%s: the lease epoch is %d", loss.name, epoch)
			hold := in.store.Header().EpochHold.Until(in.store.Now())
			require.LessOrEqual(t, hold, lease.MaxTTL, "%s: the hold of open attempts is %v", loss.name, hold)
			require.GreaterOrEqual(t, hold, lease.MaxTTL-time.Minute, "%s: the hold of open attempts is %v", loss.name, hold)
			if status, body := openAgain(t, in, "paid"); status != http.StatusOK || !strings.Contains(body, `"`+string(wire.DecisionReplay)+`"`) {
				t.Errorf("%s: the receipt: %d %s", loss.name, status, body)
			}
			status, body := openAgain(t, in, "running")
			err := in.act.Load().sweeper.Sweep(t.Context())
			require.NoError(t, err)
			id, err := flight.ParseID(running.FlightID)
			require.NoError(t, err)
			f, err := in.store.Flight(id)
			require.NoError(t, err, "%s: an open attempt was taken over: %v, %d %s", loss.name, err, status, body)
			require.NotNil(t, f.OpenAttempt(), "%s: an open attempt was taken over: %v, %d %s", loss.name, err, status, body)
			require.EqualValues(t, 1, f.AttemptNumber(), "%s: an open attempt was taken over: %v, %d %s", loss.name, err, status, body)
			require.NotEqual(t, http.StatusCreated, status, "%s: an open attempt was taken over: %v, %d %s", loss.name, err, status, body)
			err = in.stopNode()
			require.NoError(t, err)
		}
	}

	in = open(t, data, nil)
	status, body = report(t, in.server.url(), running)
	require.Equal(t, http.StatusOK, status, "report of the open attempt: %d %s", status, body)
	require.Contains(t, body, `"succeeded"`, "report of the open attempt: %d %s", status, body)
}

// recordedIndex is the greatest index that etcd has recorded.
func recordedIndex(t *testing.T, e *etcd, deployment string) (index uint64) {
	t.Helper()
	entries, err := etcdlease.DefaultRoot.RecordedEntries(t.Context(), e.client, deployment, "")
	require.NoError(t, err)
	for _, r := range entries {
		index = max(index, r.Index)
	}
	return index
}

// A ledger restored from a backup without its etcd would repeat the effects since the backup, so each start fails, whether etcd has recorded
// the newest entry while the node ran, as after a kill, or at its stop. An
// operator without a newer ledger removes etcd's data, too, and gives a reason.
func TestOlderLedgerIsRejected(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dir, older := filepath.Join(data, "ledger"), filepath.Join(t.TempDir(), "older")
	in := open(t, data, nil)
	openAttempt(t, in.server.url(), "early")
	err := in.stopNode()
	require.NoError(t, err)
	err = os.CopyFS(older, os.DirFS(dir))
	require.NoError(t, err)
	for _, meanwhile := range []bool{false, true} {
		in = open(t, data, func(u *tuning) {
			u.recordEvery = time.Hour
			if meanwhile {
				u.recordEvery = time.Millisecond
			}
		})
		paid := openAttempt(t, in.server.url(), fmt.Sprintf("paid-%v", meanwhile))
		status, body := report(t, in.server.url(), paid)
		require.Equal(t, http.StatusOK, status, "report: %d %s", status, body)
		deployment := in.store.Header().Deployment
		index, _ := in.store.Applied()
		if meanwhile {
			await(t, "the index is recorded in etcd", func() bool { return recordedIndex(t, in.etcd, deployment) >= index })
		}
		err := in.stopNode()
		require.NoError(t, err)
		e, err := startEtcd(t.Context(), etcdConfig(filepath.Join(data, "etcd"), etcdQuota, in.cfg.Logger), clusterstore.Kill)
		require.NoError(t, err)
		known := recordedIndex(t, e, deployment)
		require.False(t, known < index, "etcd has recorded entry %d at the stop, want %d", known, index)
		e.close()
		if in = open(t, data, nil); in.stopNode() != nil { // the newest ledger is accepted
			t.Fatal("the stop failed")
		}
		newest := filepath.Join(t.TempDir(), "newest")
		err = errors.Join(os.Rename(dir, newest), os.CopyFS(dir, os.DirFS(older)), writePlace(data))
		require.NoError(t, err)
		cfg := Dev(data, "127.0.0.1:0")
		for start := range 8 { // a rejected start appends nothing that could make the ledger as long as it was
			var lost *LedgerLostError
			cfg.Operator.RaiseLeaseEpoch = []string{"", "a reason for something else"}[start%2]
			require.ErrorAs(t, startError(t, cfg), &lost, "with the older ledger: %+v", lost)
			require.Less(t, lost.Last.Index, lost.Recorded.Index, "with the older ledger: %+v", lost)
		}
		err = errors.Join(os.RemoveAll(dir), os.Rename(newest, dir))
		require.NoError(t, err)
	}

	err = errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(older)), os.RemoveAll(filepath.Join(data, "etcd")), writePlace(data))
	require.NoError(t, err)
	cfg := Dev(data, "127.0.0.1:0")
	cfg.Operator.RaiseLeaseEpoch = "the newer ledger is gone for good"
	in = openConfig(t, cfg)
	openAttempt(t, in.server.url(), "late")
}

// A damaged value in etcd is an *EtcdError, whose hint repairs it, too: move etcd's directory away and raise the epoch.
func TestUnreadableEtcdValueIsAnEtcdError(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ledger", "guard"} {
		data := t.TempDir()
		in := open(t, data, func(u *tuning) { u.recordEvery = time.Hour })
		openAttempt(t, in.server.url(), "one")
		prefix := etcdlease.DefaultRoot.Prefix(in.store.Header().Deployment)
		err := in.stopNode()
		require.NoError(t, err)
		dir := filepath.Join(data, "etcd")
		e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, in.cfg.Logger), clusterstore.Kill)
		require.NoError(t, err)
		found, err := e.client.Get(t.Context(), prefix+name, clientv3.WithPrefix())
		require.NoError(t, err)
		require.Len(t, found.Kvs, 1)
		_, err = e.client.Put(t.Context(), string(found.Kvs[0].Key), "1\x80")
		require.NoError(t, err)
		e.close()
		cfg := Dev(data, "127.0.0.1:0")
		var broken *EtcdError
		err = startError(t, cfg)
		require.ErrorAs(t, err, &broken, "%s: the start returned %v", name, err)
		require.Equal(t, dir, broken.Dir, "%s: the start returned %v", name, err)
		err = os.Rename(dir, filepath.Join(t.TempDir(), "aside"))
		require.NoError(t, err)
		cfg.Operator.RaiseLeaseEpoch = "its etcd was damaged"
		in = openConfig(t, cfg)
		openAttempt(t, in.server.url(), "two")
	}
}
