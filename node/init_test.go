package node

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
)

// closed returns the configuration of a node that demands tokens.
func closed(data string) Config {
	return Config{Data: data, Listen: Listen{Address: "127.0.0.1:0"}, FirstToken: FirstToken{Print: func(string) {}}}
}

// A start with a directory that is absent, empty or another one creates nothing there: an empty ledger would let every
// effect happen again.
func TestRun_AWrongDirectoryIsNoEmptyLedger(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	deployment, err := Init(t.Context(), closed(data))
	require.NoError(t, err)
	require.NotEmpty(t, deployment)
	require.NoError(t, startError(t, closed(data)))

	other := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, "notes"), nil, 0o600))
	withoutLedger := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(withoutLedger, os.DirFS(data)))
	require.NoError(t, os.RemoveAll(filepath.Join(withoutLedger, "ledger")))
	for name, dir := range map[string]string{
		"absent": filepath.Join(t.TempDir(), "absent"), "empty": t.TempDir(), "another one": other, "the ledger's own": filepath.Join(data, "ledger", "log"),
		"without its ledger": withoutLedger,
	} {
		before, _ := os.ReadDir(dir)
		var none *NoLedgerError
		require.ErrorAs(t, startError(t, closed(dir)), &none, name)
		require.Contains(t, none.Error(), dir, name)
		after, _ := os.ReadDir(dir)
		require.Equal(t, before, after, name)
	}
	require.NoError(t, startError(t, Dev(filepath.Join(t.TempDir(), "new"), "127.0.0.1:0")), "a developer's node creates its ledger")
}

// Init rejects a directory with anything in it, except for what its own interrupted start leaves, the first token and
// the folder that every new volume has.
func TestInit_NeedsAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	_, err := Init(t.Context(), closed(data))
	require.NoError(t, err)
	var notEmpty *NotEmptyError
	_, err = Init(t.Context(), closed(data))
	require.ErrorAs(t, err, &notEmpty)
	require.Contains(t, notEmpty.Found, "ledger")
	require.NoError(t, startError(t, closed(data)), "the ledger is unharmed")
	for _, path := range []string{"notes", "etcd/member/wal", "ledger/log", "state-7"} {
		data := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(data, path), 0o700))
		_, err := Init(t.Context(), closed(data))
		require.ErrorAs(t, err, &notEmpty, path)
		all, err := os.ReadDir(data)
		require.NoError(t, err)
		require.Len(t, all, 1, "%s: nothing was created", path)
	}

	data = t.TempDir()
	require.NoError(t, prepareEtcdDir(filepath.Join(data, "etcd")))
	for _, dir := range []string{"lost+found", "ledger"} {
		require.NoError(t, os.Mkdir(filepath.Join(data, dir), 0o700))
	}
	for _, file := range []string{lockName, durable.TempPrefix + "1", "ledger/" + lockName, "ledger/tmp-IDENTITY"} {
		require.NoError(t, os.WriteFile(filepath.Join(data, file), nil, 0o600))
	}
	cfg := closed(data)
	cfg.FirstToken.File = filepath.Join(data, "first-token")
	_, err = Init(t.Context(), cfg)
	require.NoError(t, err)
	require.FileExists(t, cfg.FirstToken.File)
	require.NoFileExists(t, filepath.Join(data, durable.TempPrefix+"1"))
}

// A start that is bound to one deployment serves no other ledger, and creates none.
func TestRun_APinnedNodeServesOneDeployment(t *testing.T) {
	t.Parallel()
	data, other := t.TempDir(), t.TempDir()
	deployment, err := Init(t.Context(), closed(data))
	require.NoError(t, err)
	_, err = Init(t.Context(), closed(other))
	require.NoError(t, err)
	pinned := closed(data)
	pinned.Deployment = deployment
	require.NoError(t, startError(t, pinned))
	pinned.Data = other
	var wrong *WrongDeploymentError
	require.ErrorAs(t, startError(t, pinned), &wrong)
	require.Equal(t, deployment, wrong.Want)

	empty := filepath.Join(t.TempDir(), "data")
	pinned.Data = empty
	var invalid *flight.InvalidError
	_, err = Init(t.Context(), pinned)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "deployment", invalid.Field)
	pinned.NoCredentials = true
	var none *NoLedgerError
	require.ErrorAs(t, startError(t, pinned), &none, "a developer's node, too")
	require.NoDirExists(t, empty)
}

// The node says what its ledger holds.
func TestLedgerInfo(t *testing.T) {
	t.Parallel()
	in := open(t, t.TempDir(), nil)
	require.True(t, ledgerInfo(in.store, true).Empty)
	for _, id := range []string{"1", "2", "3"} {
		_, err := in.act.Load().exec.Do(t.Context(), effect.Call{Key: flight.MustKey("default/charge/" + id)}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			if id == "3" {
				return effect.Answer{}, io.ErrUnexpectedEOF
			}
			return effect.Answer{}, nil
		})
		require.Equal(t, id == "3", err != nil)
	}
	info := ledgerInfo(in.store, true)
	require.False(t, info.Empty)
	require.Equal(t, [...]int64{3, 1}, [...]int64{info.Flights, info.InDoubt})
	require.WithinDuration(t, time.Now(), info.Newest.Time, time.Minute)
	require.Zero(t, ledgerInfo(in.store, false))
}

// The figures of the ledger are shown where the metrics have them, and not to a caller without a token.
func TestReadyz_ShowsTheLedger(t *testing.T) {
	t.Parallel()
	var metricsURL string
	n, _ := startClosed(t, t.TempDir(), func(c *Config) {
		c.Listen.Metrics = "127.0.0.1:0"
		ready := c.Ready
		c.Ready = func(r Ready) {
			_, err := r.Executor.Do(t.Context(), effect.Call{Key: flight.MustKey("default/charge/1")}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{}, nil
			})
			if err != nil {
				t.Error(err)
			}
			metricsURL = r.Metrics
			ready(r)
		}
	})
	require.Contains(t, body(t, metricsURL+"/readyz"), `"flights":1`)
	require.JSONEq(t, `{"ready":true,"ledger":{"empty":false}}`, body(t, n.url+"/readyz"))
	http.DefaultClient.CloseIdleConnections()
}

// A first token that cannot be stored leaves no ledger behind.
func TestInit_ChecksTheFirstTokenFileFirst(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	readable := filepath.Join(parent, "readable")
	require.NoError(t, os.WriteFile(readable, nil, 0o644))
	data := filepath.Join(parent, "data")
	for _, file := range []string{readable, filepath.Join(parent, "missing", "token")} {
		cfg := closed(data)
		cfg.FirstToken.File = file
		var invalid *flight.InvalidError
		_, err := Init(t.Context(), cfg)
		require.ErrorAs(t, err, &invalid, file)
		require.Equal(t, "first_token_file", invalid.Field)
		require.NoDirExists(t, data)
	}
	cfg := closed(data)
	cfg.FirstToken.File = filepath.Join(data, "token")
	_, err := Init(t.Context(), cfg)
	require.NoError(t, err)
}
