package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// TestRestore_NothingRunsAgainWithoutAPersonsWord follows the steps of a restore: a backup of a running server, more effects,
// a restore that is accepted, keys that are asked for, an import, and the end.
func TestRestore_NothingRunsAgainWithoutAPersonsWord(t *testing.T) {
	t.Parallel()
	s, shop := startServer(t), NewShop(t, false)
	backup := filepath.Join(t.TempDir(), "backup")
	s.pay(shop, 1, 2)
	readable := func(format string, r result) {
		t.Helper()
		require.Zero(t, r.code, "%v", r)
		require.NotEmpty(t, r.out)
		require.NoError(t, checkReadable(format, r.out), "%v", r)
	}
	readable("json", s.flightd("backup", backup, "-o", "json"))
	full := s.flightd("backup", backup)
	require.Equal(t, cli.ExitUsage, full.code, "%v", full)
	require.Contains(t, full.err, "not empty")
	s.pay(shop, 3, 4)
	s.kill()

	lost := s.data
	s.data = filepath.Join(t.TempDir(), "restored")
	restored := s.flightd("restore", "--from", backup, "--data", s.data, "-o", "id")
	readable("id", restored)
	require.Contains(t, restored.err, "restore accept")
	for range 2 {
		s.requireRejected("copied or restored", "flightd restore accept")
	}
	accept := []string{"restore", "accept", "--data", s.data}
	require.Equal(t, cli.ExitUsage, s.flightd(append(accept, "--yes")...).code, "without a reason")
	accept = append(accept, "--reason", "the disk died")
	require.Equal(t, cli.ExitUsage, s.flightd(accept...).code, "without --yes and a terminal")
	readable("yaml", s.flightd(append(accept, "--yes", "--actor", "ada", "-o", "yaml")...))
	for range 2 { // a restart changes nothing
		s.start()
		s.pay(shop, 1, 2) // replayed
		for _, key := range []string{"pay-3", "pay-4", "pay-5"} {
			r := s.flightd("exec", "--key", key, "--wait", "0", "--", shop.path("pay.sh")).want(t, cli.ExitUnreachable, "", "reconciling")
			require.Contains(t, r.err, "flightd restore finish")
		}
		require.Len(t, shop.Pids("started"), 4)
		asked := s.flightd("restore", "asked", "-o", "id")
		require.Equal(t, "default/exec/pay-3\ndefault/exec/pay-4\ndefault/exec/pay-5\n", asked.out, "%v", asked)
		s.kill()
	}
	s.start()
	require.Equal(t, http.StatusOK, s.get("/readyz", nil), "receipts and reports are served")
	imported := s.beginCommand("sh", "-c", `echo '{"key":"default/exec/pay-3","outcome":"succeeded","external_id":"ch_3"}' | `+program+" import -").wait()
	require.Zero(t, imported.code, "%v", imported)
	require.Equal(t, "default/exec/pay-4\ndefault/exec/pay-5\n", s.flightd("restore", "asked", "-o", "id").out)
	finish := []string{"restore", "finish", "--reason", "looked at the bank", "--yes", "--actor", "bob"}
	early := s.flightd(finish...)
	require.NotZero(t, early.code, "%v", early)
	require.Contains(t, early.err, "hold")
	readable("json", s.flightd(append(finish, "--force", "-o", "json")...))
	require.Equal(t, 0, s.flightd("exec", "--key", "pay-3", "--", shop.path("pay.sh")).code)
	require.Len(t, shop.Pids("started"), 4, "imported")
	s.pay(shop, 4, 4) // the word of an operator
	require.Len(t, shop.Pids("started"), 5)
	var log struct {
		Entries []struct{ Verb, Actor, Reason string }
	}
	s.get("/v1/audit?limit=10", &log)
	said, err := json.Marshal(log)
	require.NoError(t, err)
	for _, want := range []string{"accept_restore", "the disk died", "ada", "force_finish_restore", "looked at the bank", "bob"} {
		require.Contains(t, string(said), want)
	}
	s.kill()

	s.data = lost // the original has no part in it, and still starts
	s.start()
	for _, command := range [][]string{{"asked"}, {"finish", "--reason", "a test", "--yes"}} {
		r := s.flightd(append([]string{"restore"}, command...)...)
		require.Equal(t, cli.ExitFailed, r.code, "the server's ledger was not restored: %v", r)
		require.Contains(t, r.err, s.address, "%v", r)
	}
	s.pay(shop, 1, 4)
	require.Len(t, shop.Pids("started"), 5)
}

// TestRestore_MovedDirectoryGoesOn: an operator's word that a directory was moved makes a copy acceptable, with a line in
// the audit log and without a hold.
func TestRestore_MovedDirectoryGoesOn(t *testing.T) {
	t.Parallel()
	s, shop := startServer(t), NewShop(t, false)
	s.pay(shop, 1, 2)
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, s.cmd.Wait())
	s.cmd = nil
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, exec.Command("cp", "-a", s.data, moved).Run())
	require.NoError(t, os.RemoveAll(s.data))
	s.data = moved
	s.requireRejected("copied or restored", "--moved")
	accepted := s.flightd("restore", "accept", "--data", s.data, "--moved", "--reason", "new disk", "--yes")
	require.Zero(t, accepted.code, "%v", accepted)
	for range 2 {
		s.start()
		s.pay(shop, 1, 3)
		s.kill()
	}
	s.start()
	require.Len(t, shop.Pids("started"), 3)
	var log struct {
		Entries []struct{ Verb, Reason string }
	}
	s.get("/v1/audit?verb=accept_move", &log)
	require.Len(t, log.Entries, 1)
	require.Equal(t, "new disk", log.Entries[0].Reason)
}
