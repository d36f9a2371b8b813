package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/storetest"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// pay runs pay.sh of the shop once for each key pay-FROM to pay-TO, and requires success.
func (s *server) pay(shop *shop, from, to int) {
	s.t.Helper()
	for i := from; i <= to; i++ {
		s.flightd("exec", "--key", fmt.Sprint("pay-", i), "--", shop.path("pay.sh")).want(s.t, cli.ExitOK, "", "")
	}
}

// copyData copies directories of the data directory while the server stands still, as a crash would leave them.
func (s *server) copyData(to string, names ...string) {
	s.t.Helper()
	for _, name := range names {
		require.NoError(s.t, os.RemoveAll(filepath.Join(to, name)))
		require.NoError(s.t, os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(s.data, name))))
	}
}

// putBack replaces directories of the data directory by the copies in from. It keeps the file by which flightd recognises a
// copy, as a disk does that loses writes.
func (s *server) putBack(from string, names ...string) {
	s.t.Helper()
	for _, name := range names {
		to, kept := filepath.Join(s.data, name), filepath.Join(s.data, "kept")
		own := os.Rename(filepath.Join(to, "INODE"), kept) == nil
		require.NoError(s.t, os.RemoveAll(to))
		require.NoError(s.t, os.CopyFS(to, os.DirFS(filepath.Join(from, name))))
		if own {
			require.NoError(s.t, os.Rename(kept, filepath.Join(to, "INODE")))
		}
	}
}

// requireRejected starts the server and requires a rejection with all these words.
func (s *server) requireRejected(words ...string) {
	s.t.Helper()
	i := s.begin(append([]string{"dev", "--data", s.data, "--listen", s.address}, s.flags...)...)
	accepted := time.AfterFunc(limit, func() { _ = i.cmd.Process.Kill() })
	r := i.wait()
	accepted.Stop()
	require.Equal(s.t, cli.ExitConfig, r.code, "%v", r)
	for _, w := range words {
		require.Contains(s.t, r.err, w, "%v", r)
	}
}

// TestDev_ShortenedLogStaysRejected: a ledger whose log lost 1 to 100 entries at its end is rejected at each of ten starts.
func TestDev_ShortenedLogStaysRejected(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s, early, whole := startServer(t), t.TempDir(), t.TempDir()
	s.kill()
	s.copyData(early, "ledger")
	s.start()
	s.payMany(rng, 60)
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, s.cmd.Wait())
	s.cmd = nil
	s.copyData(whole, "ledger")
	for range shortenedLogs {
		s.putBack(whole, "ledger")
		states, err := filepath.Glob(filepath.Join(early, "ledger", "state-*"))
		require.NoError(t, err)
		require.Len(t, states, 1)
		s.putBack(early, filepath.Join("ledger", filepath.Base(states[0]))) // the state would hold the entries that the log has lost
		lost := 1 + rng.Uint64N(100)
		last := storetest.ShortenLog(t, filepath.Join(s.data, "ledger"), lost)
		for range 10 {
			s.requireRejected(fmt.Sprintf("it ends at entry %d, but etcd has recorded entry %d", last-lost, last))
		}
	}
}
