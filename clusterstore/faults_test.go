package clusterstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faultyLog is a log with switchable faults.
type faultyLog struct {
	raft.LogStore
	fail  atomic.Bool // entries are stored, and StoreLogs returns an error
	stall atomic.Bool // entries are stored after a minute
}

func (f *faultyLog) StoreLogs(entries []*raft.Log) error {
	if f.stall.Load() {
		time.Sleep(time.Minute)
	}
	err := f.LogStore.StoreLogs(entries)
	if f.fail.CompareAndSwap(true, false) {
		return errors.New("the disk says no, and has it all the same")
	}
	return err
}

func withFaults(cfg Config) (Config, *faultyLog) {
	f := new(faultyLog)
	cfg.Log.wrap = func(l raft.LogStore) raft.LogStore {
		f.LogStore = l
		return f
	}
	return cfg, f
}

// A failed write may still be durable: the command is proposed again, and is applied as one command.
func TestHazard38_FailedWriteLandsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, log := withFaults(memConfig(vfs.NewMem()))
		s := openStore(t, cfg)
		open := openOf(s, testKey(1), 1)
		log.fail.Store(true)
		reply := propose(t, s, open)
		require.Equal(t, flight.DecisionProceed, reply.Decision)
		require.Equal(t, uint32(1), reply.Token.Number)
		log.fail.Store(true)
		reply, err := s.Report(context.Background(), reportOf(testKey(1), reply.Token, "x"))
		require.NoError(t, err)
		require.Equal(t, flight.DecisionAccepted, reply.Decision)
		require.Equal(t, uint32(1), reply.Flight.AttemptCount)
		require.Zero(t, s.Spooled())
	})
}

func TestHazard38_DiskStallKillsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, log := withFaults(memConfig(vfs.NewMem()))
		type death struct {
			why error
			at  time.Time
		}
		died, stalled := make(chan death, 1), make(chan string, 1)
		cfg.Limits.Kill = func(why error) { died <- death{why, time.Now()} }
		cfg.Events.Stalled = func(op string, after time.Duration) { stalled <- op + " " + after.String() }
		s := openStore(t, cfg)
		start := time.Now()
		log.stall.Store(true)
		propose(t, s, &flight.Tick{}) // this Kill returns, so the write succeeds in the end
		end := <-died
		require.ErrorContains(t, end.why, "the disk stalls")
		require.Equal(t, 5*time.Second, end.at.Sub(start))
		require.Equal(t, "append 5s", <-stalled)
		log.stall.Store(false)
	})
}

func TestHazard09_ReportOfUnknownOutcomeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		cfg, z := memConfig(fs), new(applyBlocker)
		cfg.Events = z.events()
		spooled := make(chan time.Time, 1)
		cfg.Events.Spooled = func(flight.Key) { spooled <- time.Now() }
		var late, lateNext atomic.Int32
		cfg.Events.ReportedLate = func(_ uint32, o flight.Outcome, reply flight.Reply) {
			require.Equal(t, flight.OutcomeSucceeded, o)
			require.True(t, reply.Changed)
			late.Add(1)
		}
		s := openStore(t, cfg)
		token := propose(t, s, openOf(s, testKey(1), 1)).Token
		thaw := sync.OnceFunc(z.block(t, s))
		defer thaw()
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Report(ctx, reportOf(testKey(1), token, `{"id":1}`))
		require.ErrorIs(t, err, effect.ErrPending)
		require.Equal(t, time.Second, time.Since(start))
		after := (<-spooled).Sub(start)
		require.True(t, 200*time.Millisecond <= after && after <= 250*time.Millisecond, "spooled after %v", after)
		require.Equal(t, 1, s.Spooled())

		// After the power cut, unsynced data is lost. The next process proposes the spooled report.
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		thaw()
		synctest.Wait()
		time.Sleep(time.Second)
		require.Zero(t, s.Spooled(), "the report has been committed")
		require.EqualValues(t, 1, late.Load(), "its caller has stopped waiting")
		nextConfig := memConfig(crashed)
		nextConfig.Events.ReportedLate = func(uint32, flight.Outcome, flight.Reply) { lateNext.Add(1) }
		next := openStore(t, nextConfig)
		time.Sleep(time.Second)
		require.Zero(t, next.Spooled())
		require.EqualValues(t, 1, lateNext.Load())
		for _, ledger := range []*Store{s, next} {
			f, err := ledger.Flight(testKey(1).FlightID())
			require.NoError(t, err)
			require.Equal(t, flight.StateSucceeded, f.State)
			require.Equal(t, token.Number, f.Receipt.Attempt)
			require.Empty(t, f.Evidence, "a repeated report adds no evidence")
		}
	})
}

// A report that is only in the spool, not in the log, is committed by the next start.
func TestSpoolAloneIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		token := propose(t, s, openOf(s, testKey(1), 1)).Token
		report := reportOf(testKey(1), token, `{"id":1}`)
		data, err := flight.Encode(report)
		require.NoError(t, err)
		_, err = s.spool.add(report, data)
		require.NoError(t, err)
		require.NoError(t, writeSynced(fs, fs.PathJoin(s.spool.dir, "torn"+spoolSuffix), []byte("FDR1....")))
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		require.NoError(t, s.Close(context.Background()))
		cfg := memConfig(crashed)
		damaged := ""
		cfg.Events.ReportQuarantined = func(file string, _ error) { damaged = file }
		next := openStore(t, cfg)
		time.Sleep(time.Second)
		requireKnown(t, next, &knownFlights{receipts: map[int]flight.Receipt{1: *mustFlight(t, next, 1).Receipt}})
		require.Zero(t, next.Spooled())
		if damaged != "" { // the name of the torn file was not synced and may be lost
			require.Equal(t, "torn"+spoolSuffix, damaged)
		}
	})
}

func mustFlight(t *testing.T, s *Store, n int) *flight.Flight {
	t.Helper()
	f, err := s.Flight(testKey(n).FlightID())
	require.NoError(t, err)
	require.NotNil(t, f)
	return f
}

func TestOpenRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		cfg := memConfig(fs)
		cfg.NodeID, cfg.ClusterID = "node-1", "cluster-1"
		s, err := Open(context.Background(), cfg)
		require.NoError(t, err)
		_, err = Open(context.Background(), cfg)
		require.ErrorIs(t, err, ErrLocked)
		deployment := s.Header().Deployment
		require.NotEmpty(t, deployment)
		require.Len(t, s.Header().Secret, 32)
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, s.Close(context.Background()), "a second Close does nothing")

		for field, other := range map[string]Config{"node": {NodeID: "node-2"}, "cluster": {ClusterID: "cluster-2"}} {
			changed := memConfig(fs)
			changed.NodeID, changed.ClusterID = other.NodeID, other.ClusterID
			_, err = Open(context.Background(), changed)
			require.ErrorIs(t, err, ErrForeign, field)
		}
		reopened, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err, "empty ids select those of the directory")
		require.Equal(t, deployment, reopened.Header().Deployment)
		require.NoError(t, reopened.Close(context.Background()))

		identity, err := readFile(fs, "ledger/"+identityFile)
		require.NoError(t, err)
		require.NoError(t, writeFile(fs, "ledger", identityFile, []byte(`{"format":2,"node":"n","cluster":"c"}`)))
		_, err = Open(context.Background(), memConfig(fs))
		require.ErrorIs(t, err, ErrNewer)
		require.NoError(t, fs.Remove("ledger/"+identityFile))
		_, err = Open(context.Background(), memConfig(fs))
		require.ErrorIs(t, err, ErrDamaged)
		require.NoError(t, writeFile(fs, "ledger", identityFile, identity))
		at, err := memConfig(fs).withDefaults()
		require.NoError(t, err)
		whole, err := identify(&at)
		require.NoError(t, err)
		for bit := range 8 * len(identity) { // under another id the node would wait for ever for those who vote
			changed := bytes.Clone(identity)
			changed[bit/8] ^= 1 << (bit % 8)
			require.NoError(t, writeFile(fs, "ledger", identityFile, changed))
			if id, err := identify(&at); err == nil {
				id.Sum = whole.Sum // or it cannot be read any more: nothing else has changed
				require.Equal(t, whole, id, "%s", changed)
			}
		}
		require.NoError(t, writeFile(fs, "ledger", identityFile, identity))
		openStore(t, memConfig(fs))
		_, err = Open(context.Background(), Config{})
		require.ErrorContains(t, err, "Dir is empty")
	})
}

// fullDisk is a file system with an adjustable amount of free space.
type fullDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (d *fullDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load()}, nil
}

func TestDiskNearlyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fullDisk{FS: vfs.NewMem()}
		disk.free.Store(1 << 40)
		s := openStore(t, memConfig(disk))
		token := propose(t, s, openOf(s, testKey(1), 1)).Token
		disk.free.Store(1 << 20)
		time.Sleep(2 * diskInterval)
		_, err := s.Propose(context.Background(), openOf(s, testKey(2), 2))
		require.ErrorIs(t, err, ErrUnavailable)
		_, err = s.Report(context.Background(), reportOf(testKey(1), token, "x"))
		require.NoError(t, err, "reports are accepted below MinFree")
		disk.free.Store(1 << 40)
		time.Sleep(2 * diskInterval)
		propose(t, s, openOf(s, testKey(2), 2))
	})
}

// A snapshot that fails on a full disk leaves no files, and the next one succeeds.
func TestSnapshotOnAFullDiskLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, mem, full := context.Background(), vfs.NewMem(), new(atomic.Bool)
		cfg := memConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, snapshotMetaFile) {
				return syscall.ENOSPC
			}
			return nil
		})))
		s := openStore(t, cfg)
		known := new(knownFlights)
		known.add(1, openAndReport(t, s, 1))
		require.NoError(t, s.takeSnapshot())
		before, err := mem.List("ledger/" + snapshotDir)
		require.NoError(t, err)
		known.add(2, openAndReport(t, s, 2))
		full.Store(true)
		for range 3 {
			require.ErrorContains(t, s.takeSnapshot(), syscall.ENOSPC.Error())
			after, err := mem.List("ledger/" + snapshotDir)
			require.NoError(t, err)
			require.Equal(t, before, after)
		}
		full.Store(false)
		require.NoError(t, s.takeSnapshot())
		require.NoError(t, s.Close(ctx))
		require.NoError(t, mem.RemoveAll("ledger/"+stateName(1)))
		requireKnown(t, openStore(t, memConfig(mem)), known)
	})
}

func TestProposeAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(context.Background(), memConfig(vfs.NewMem()))
		require.NoError(t, err)
		require.NoError(t, s.Close(context.Background()))
		_, err = s.Propose(context.Background(), &flight.Tick{})
		require.ErrorIs(t, err, ErrClosed)
		_, err = s.Report(context.Background(), &flight.Report{Key: testKey(1)})
		require.ErrorIs(t, err, ErrClosed)
		_, err = s.Wait(context.Background(), testKey(1).FlightID(), flight.Version{})
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, s.Barrier(context.Background()), ErrClosed)
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		for n := range 1300 {
			key := testKey(n)
			if n%4 == 3 {
				key = flight.MustKey(fmt.Sprintf("shop/ship/order-%d", n))
			}
			open := openOf(s, key, n)
			token := propose(t, s, open).Token
			if n%100 != 99 {
				propose(t, s, reportOf(key, token, "x"))
			}
			if n%3 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		require.Len(t, pages(t, s, flight.Query{Limit: 97}, nil), 1300)
		require.Len(t, pages(t, s, flight.Query{Namespace: "shop"}, nil), 325)
		require.Len(t, pages(t, s, flight.Query{Name: "charge", Limit: 500}, nil), 975)
		require.Len(t, pages(t, s, flight.Query{Prefix: "test/charge/order-12"}, nil), 84)
		require.Len(t, pages(t, s, flight.Query{Contains: "order-12", Limit: 20}, nil), 111)
		require.Len(t, pages(t, s, flight.Query{States: []flight.State{flight.StateRunning}, Limit: 4}, nil), 13)
		require.Len(t, pages(t, s, flight.Query{States: []flight.State{flight.StateRunning}, Contains: "99"}, nil), 13)
		require.Len(t, pages(t, s, flight.Query{States: []flight.State{flight.StateSucceeded}, Limit: 500}, nil), 1287)
		middle := mustFlight(t, s, 600).CreatedAt
		recent := pages(t, s, flight.Query{Since: middle}, nil)
		require.Contains(t, recent, testKey(600).FlightID())
		require.Contains(t, []int{700, 701, 702}, len(recent))
		// Writes between two pages neither repeat nor hide existing flights.
		n := 5000
		all := pages(t, s, flight.Query{Limit: 50}, func() { openAndReport(t, s, n); n++ })
		require.Len(t, all, 1300)

		var live []*flight.Flight
		for f, err := range s.Live() {
			require.NoError(t, err)
			live = append(live, f)
		}
		require.Len(t, live, 13)
		require.Less(t, live[9].CreatedAt, live[10].CreatedAt, "oldest first")
		require.Equal(t, int64(13), s.Counts()[flight.StateRunning])
	})
}

// pages reads a whole list, page by page, and checks its order.
func pages(t *testing.T, s *Store, q flight.Query, between func()) map[flight.ID]bool {
	t.Helper()
	seen := make(map[flight.ID]bool)
	var last *flight.Flight
	for {
		page, err := s.List(q)
		require.NoError(t, err)
		for _, f := range page.Flights {
			require.False(t, seen[f.ID], "twice")
			seen[f.ID] = true
			require.True(t, last == nil || flight.NewestFirst(last, f) < 0, "out of order")
			last = f
		}
		if !page.More {
			return seen
		}
		q.After = page.Next
		if between != nil {
			between()
		}
	}
}
