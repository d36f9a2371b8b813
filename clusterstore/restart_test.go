package clusterstore

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

var (
	stored   = flag.Int("stored", 20_000, "flights that the restart benchmark stores")
	loadInto = flag.String("load-into", "", "the restart benchmark's child: load flights into this directory until killed")
)

// BenchmarkRestart measures the start of a ledger of -stored flights, after Close and after a kill under load. For
// the documented figure: go test -run=- -bench=Restart -benchtime=1x -stored=2000000 -timeout=1h
func BenchmarkRestart(b *testing.B) {
	if *loadInto != "" {
		loadUntilKilled(b)
	}
	dir := b.TempDir()
	s, err := Open(context.Background(), Config{Dir: dir})
	require.NoError(b, err)
	load(b, s, 0, *stored)
	require.NoError(b, s.Close(context.Background()))
	b.ResetTimer()
	for range b.N {
		b.ReportMetric(restart(b, dir).Seconds(), "s/closed")
		killUnderLoad(b, dir)
		b.ReportMetric(restart(b, dir).Seconds(), "s/killed")
	}
}

// load runs n flights, from the number from, with many callers.
func load(b *testing.B, s *Store, from, n int) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range 512 {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				openAndReport(b, s, from+int(i))
			}
		})
	}
	group.Wait()
}

// restart opens the ledger, reads from it, and returns how long Open took.
func restart(b *testing.B, dir string) time.Duration {
	start := time.Now()
	s, err := Open(context.Background(), Config{Dir: dir})
	require.NoError(b, err)
	took := time.Since(start)
	f, err := s.Flight(testKey(*stored / 2).FlightID())
	require.NoError(b, err)
	require.Equal(b, flight.StateSucceeded, f.State)
	require.NoError(b, s.Close(context.Background()))
	return took
}

// killUnderLoad runs a child process under load and kills it.
func killUnderLoad(b *testing.B, dir string) {
	child := exec.Command(os.Args[0], "-test.run=-", "-test.bench=Restart", "-test.benchtime=1x", "-load-into="+dir)
	out, err := child.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, child.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "loading" {
	}
	time.Sleep(3 * time.Second) // the kill comes at a random moment of real time
	require.NoError(b, child.Process.Kill())
	require.Error(b, child.Wait())
}

func loadUntilKilled(b *testing.B) {
	s, err := Open(context.Background(), Config{Dir: *loadInto})
	require.NoError(b, err)
	_, err = os.Stdout.WriteString("\nloading\n")
	require.NoError(b, err)
	load(b, s, int(time.Now().UnixNano()%1e12), 1<<30)
}
