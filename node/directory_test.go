package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
)

// A node is killed when its files were deleted or replaced: the system would accept writes to files without a name, and
// their receipts would be lost. TestDeletedLedgerEndsTheNode of cmd/flightd shows it with a process.
func TestWatchDirectory_ADeletedOneEndsTheNode(t *testing.T) {
	remove := func(name string) func(string) error {
		return func(data string) error { return os.RemoveAll(filepath.Join(data, name)) }
	}
	for name, lose := range map[string]func(data string) error{
		"the ledger": remove("ledger"), "its log": remove("ledger/log"), "etcd": remove("etcd"), "everything": remove(""),
		"moved": func(data string) error { return os.Rename(data, data+"-moved") },
		"replaced": func(data string) error {
			ledger := filepath.Join(data, "ledger")
			if err := os.RemoveAll(ledger); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(ledger, "log"), 0o700)
		},
		"another lock": func(data string) error {
			if err := os.WriteFile(filepath.Join(data, "new"), nil, 0o600); err != nil {
				return err
			}
			return os.Rename(filepath.Join(data, "new"), filepath.Join(data, lockName))
		},
	} {
		data := filepath.Join(t.TempDir(), "data")
		for _, dir := range []string{"ledger/log", "etcd/member"} {
			require.NoError(t, os.MkdirAll(filepath.Join(data, dir), 0o700))
		}
		require.NoError(t, os.WriteFile(filepath.Join(data, lockName), nil, 0o600))
		killed := make(chan error, 1)
		n := &node{etcd: &etcd{member: &embed.Etcd{}}, parts: newGroup(1), cfg: Config{Data: data, Process: Process{Kill: func(why error) { killed <- why }}, tuning: tuning{directoryEvery: time.Millisecond}}}
		require.NoError(t, watchDirectory(n.parts, &n.cfg))
		require.NoError(t, lose(data))
		var lost *DirectoryLostError
		require.ErrorAs(t, <-killed, &lost, name)
		require.Contains(t, lost.Path, data, name)
		require.ErrorAs(t, n.parts.wait(t.Context()), &lost, name)
	}
}
