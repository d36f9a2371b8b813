package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// A worker that is process 1, as in a container, reaps the processes that its commands leave behind.
func TestWork_AsProcessOne_ReapsOrphans(t *testing.T) {
	t.Parallel()
	if err := exec.Command("unshare", "-Urpf", "--mount-proc", "true").Run(); err != nil {
		t.Skipf("namespaces cannot be made here: %v", err)
	}
	s := startServer(t)
	shop := NewShop(t, false)
	// The orphan ends before its command. The receipt of the command is the number of zombies.
	script := shop.script("(true & sleep 0.1 & ) ; sleep 2; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '; true")
	s.beginCommand("unshare", "-Urpf", "--mount-proc", "--kill-child", program, "work", "charge", "--", script)
	for i := range 2 {
		r := s.flightd("submit", "charge", fmt.Sprint("o-", i), "--input", "1", "--wait", "forever").want(t, cli.ExitOK, "", "")
		require.Equal(t, "0", strings.TrimSpace(r.out), "zombies")
	}
}
