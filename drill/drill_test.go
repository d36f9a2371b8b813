package drill

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// binary is flightd, built once for the tests with real processes.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "flightd-drill-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "flightd")
	code := 1
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/flightd").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// runDrill executes the command `flightd drill` and returns its JSON report and exit code.
func runDrill(t *testing.T, args ...string) (report Report, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"drill", "-o", "json", "--data", t.TempDir()}, args...)...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	require.False(t, err != nil && !errors.As(err, &exit))
	require.NoError(t, json.Unmarshal(out.Bytes(), &report), "%s\n%s", &out, &stderr)
	t.Logf("%s", &stderr)
	return report, cmd.ProcessState.ExitCode()
}

func TestDrillAfterEffect(t *testing.T) {
	t.Parallel()
	report, code := runDrill(t, "--only", "after-effect,drop")
	for _, row := range report.Rows {
		require.Empty(t, row.Broken, "%s: %+v", row.ID, row.Facts)
		require.Len(t, row.Tickets, 1, row.ID)
		require.NotEmpty(t, row.Requests[0].Key, row.ID)
	}
	require.Len(t, report.Rows, 12)
	require.Zero(t, code)
}

func TestDrillWithoutFlightdFails(t *testing.T) {
	t.Parallel()
	report, code := runDrill(t, "--without-flightd")
	require.Equal(t, 1, code)
	require.Equal(t, 5, report.Broken)
	for _, row := range report.Rows {
		duplicates := !slices.Contains([]string{"caller-before-send-none", "503-none"}, row.ID)
		require.Equal(t, duplicates, slices.Contains(row.Broken, "2 tickets for one intent"), "%s: %v", row.ID, row.Broken)
	}
}
