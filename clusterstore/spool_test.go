package clusterstore

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// spoolFS blocks the first writer of a spooled report before its rename until a second writer has started, and blocks
// the second one before its first byte until it is released.
type spoolFS struct {
	vfs.FS
	begun   atomic.Int32
	second  chan struct{} // closed when the second writer has started
	release chan struct{}
}

func (f *spoolFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err != nil || !strings.HasSuffix(name, spoolSuffix) || f.begun.Add(1) != 2 {
		return file, err
	}
	close(f.second)
	return heldFile{file, f.release}, nil
}

func (f *spoolFS) Rename(from, to string) error {
	if strings.HasSuffix(to, spoolSuffix) {
		<-f.second
	}
	return f.FS.Rename(from, to)
}

type heldFile struct {
	vfs.File
	release chan struct{}
}

func (h heldFile) Write(b []byte) (int, error) {
	<-h.release
	return h.File.Write(b)
}

// A report that was acknowledged as spooled survives even if another caller is writing the same report.
func TestSpool_TheSameReportTwiceAtOnce(t *testing.T) {
	disk := vfs.NewCrashableMem()
	fs := &spoolFS{FS: disk, second: make(chan struct{}), release: make(chan struct{})}
	cfg, err := memConfig(fs).withDefaults()
	require.NoError(t, err)
	var logged bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	spool, err := openSpool(&cfg)
	require.NoError(t, err)
	report := reportOf(testKey(1), flight.Token{Number: 1}, `{"id":1}`)
	data, err := flight.Encode(report)
	require.NoError(t, err)
	kept, names := make(chan error, 2), make(chan string, 2)
	for range 2 {
		go func() { name, err := spool.add(report, data); names <- name; kept <- err }()
	}
	require.NoError(t, <-kept)
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	close(fs.release)
	require.NoError(t, <-kept)
	require.Len(t, spool.reports, 1)

	cfg.FS = crashed
	after, err := openSpool(&cfg)
	require.NoError(t, err)
	require.Len(t, after.reports, 1, "the report survived the power cut")

	spool.remove(<-names)
	spool.remove(<-names)
	require.Empty(t, spool.reports)
	require.Empty(t, logged.String(), "each caller removes the report, and nothing is wrong")
}

// Open removes incomplete files: no caller was told that they are stored, and their bytes may have to be erased.
func TestSpool_LeavesNothingUnfinished(t *testing.T) {
	fs := vfs.NewMem()
	s, err := Open(context.Background(), memConfig(fs))
	require.NoError(t, err)
	dir := s.spool.dir
	require.NoError(t, s.Close(context.Background()))
	require.NoError(t, writeSynced(fs, fs.PathJoin(dir, tempPrefix+"abc"+spoolSuffix), []byte("FDR1....a receipt")))
	openStore(t, memConfig(fs))
	names, err := fs.List(dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

// unreadable is a file system on which reads of spooled reports fail for a while.
type unreadable struct {
	vfs.FS
	why error
}

func (u *unreadable) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if u.why != nil && strings.HasSuffix(name, spoolSuffix) {
		return nil, u.why
	}
	return u.FS.Open(name, opts...)
}

// A temporary read error is not damage: the start fails, and the next one, with the right owner or version, commits
// the report.
func TestSpool_UnreadableReportFailsOpen(t *testing.T) {
	fs := &unreadable{FS: vfs.NewMem()}
	cfg, err := memConfig(fs).withDefaults()
	require.NoError(t, err)
	spool, err := openSpool(&cfg)
	require.NoError(t, err)
	report := reportOf(testKey(1), flight.Token{Number: 1}, `{"id":1}`)
	data, err := flight.Encode(report)
	require.NoError(t, err)
	name, err := spool.add(report, data)
	require.NoError(t, err)

	fs.why = errors.New("permission denied")
	_, err = openSpool(&cfg)
	require.ErrorIs(t, err, fs.why)
	fs.why = nil

	newer := append([]byte(nil), data...)
	newer[0] = flight.CodecVersion + 1
	later, err := spool.add(report, newer)
	require.NoError(t, err)
	reopened, err := openSpool(&cfg)
	require.NoError(t, err)
	require.Contains(t, reopened.reports, name)
	require.NotContains(t, reopened.reports, later)
}

// A report that is intact, and that this build cannot decode, keeps its name for the build that can.
func TestSpool_KeepsReportsOfANewerBuild(t *testing.T) {
	fs := vfs.NewMem()
	cfg, err := memConfig(fs).withDefaults()
	require.NoError(t, err)
	spool, err := openSpool(&cfg)
	require.NoError(t, err)
	report := reportOf(testKey(1), flight.Token{Number: 1}, `{"id":1}`)
	data, err := flight.Encode(report)
	require.NoError(t, err)
	newerCodec := append([]byte(nil), data...)
	newerCodec[0] = flight.CodecVersion + 1
	newField := append([]byte(nil), data...)
	newField[2]++ // the number of fields in the map
	newField = append(newField, 0x17, 0x01)
	for _, content := range [][]byte{newerCodec, newField} {
		name, err := spool.add(report, content)
		require.NoError(t, err)
		before, err := readFile(fs, fs.PathJoin(spool.dir, name))
		require.NoError(t, err)
		opened, err := openSpool(&cfg)
		require.NoError(t, err)
		require.Empty(t, opened.reports)
		told, _ := opened.quarantined()
		require.Equal(t, 1, told, "a person is told")
		after, err := readFile(fs, fs.PathJoin(spool.dir, name))
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.NoError(t, fs.Remove(fs.PathJoin(spool.dir, name)))
	}
}

// A spooled report of success of a flight that the ledger has lost is the receipt of that flight.
func TestSpool_ReportOfUnknownFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		s, err := Open(t.Context(), memConfig(mem))
		require.NoError(t, err)
		report := reportOf(testKey(1), propose(t, s, openOf(s, testKey(1), 1)).Token, `{"id":1}`)
		data, err := flight.Encode(report)
		require.NoError(t, err)
		_, err = s.spool.add(report, data)
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
		for _, lost := range []string{currentFile, logDir, stateName(1)} {
			require.NoError(t, mem.RemoveAll("ledger/"+lost))
		}
		cfg := memConfig(mem)
		id, err := identify(&cfg)
		require.NoError(t, err)
		id.Started = false
		require.NoError(t, id.write(&cfg))

		next := openStore(t, memConfig(mem))
		time.Sleep(time.Second) // virtual time
		require.Zero(t, next.Spooled())
		require.Empty(t, next.Stats().QuarantineFiles)
		f := mustFlight(t, next, 1)
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Equal(t, flight.SourceReportAfterRestore, f.Receipt.Source)
		require.Equal(t, report.ExternalID, f.Receipt.ExternalID)
		requireConsistent(t, next)
	})
}

// A quarantined report holds the bytes that a redaction erases. Its name holds the flight's id even if its content is
// damaged, and reports of other flights are kept.
func TestScrub_RemovesQuarantinedReports(t *testing.T) {
	redact := map[string]func(*testing.T, *Store){
		"before the quarantine": nil,
		"after it": func(t *testing.T, s *Store) {
			require.Equal(t, flight.DecisionAccepted, propose(t, s, redactOf(testKey(0), 1)).Decision)
		},
		"of a freed key": func(t *testing.T, s *Store) { // the freed flight is not marked as redacted
			propose(t, s, &flight.FreeKey{Key: testKey(0), Generation: 1})
			require.Equal(t, flight.DecisionAccepted, propose(t, s, redactOf(testKey(0), 2)).Decision)
		},
	}
	for name, late := range redact {
		t.Run(name, func(t *testing.T) {
			mem, ctx := vfs.NewMem(), context.Background()
			s, err := Open(ctx, memConfig(mem))
			require.NoError(t, err)
			files := []string{corruptSpooled(t, s, 0), corruptSpooled(t, s, 1)}
			if late == nil {
				propose(t, s, redactOf(testKey(0), 1))
				_, err = s.Scrub(ctx)
				require.NoError(t, err)
			}
			require.NoError(t, s.Close(ctx))

			s = openStore(t, memConfig(mem))
			names, err := mem.List(s.spool.dir)
			require.NoError(t, err)
			require.ElementsMatch(t, files, names)
			require.Equal(t, 2, s.Stats().Quarantined)
			if late != nil {
				late(t, s)
			}
			_, err = s.Scrub(ctx)
			require.NoError(t, err)
			names, err = mem.List(s.spool.dir)
			require.NoError(t, err)
			require.Equal(t, files[1:], names)
			require.NoError(t, mem.Remove(mem.PathJoin(s.spool.dir, names[0]))) // an operator has removed it
			require.Zero(t, s.Stats().Quarantined)
		})
	}
}

// corruptSpooled leaves an unreadable report in the spool, and returns the name of the quarantined file.
func corruptSpooled(t *testing.T, s *Store, n int) string {
	t.Helper()
	report := reportOf(openAndReportSecret(t, s, n), flight.Token{Number: 1}, secretOf(n))
	data, err := flight.Encode(report)
	require.NoError(t, err)
	name, err := s.spool.add(report, data)
	require.NoError(t, err)
	path := s.cfg.FS.PathJoin(s.spool.dir, name)
	content, err := readFile(s.cfg.FS, path)
	require.NoError(t, err)
	content[spoolHeaderSize]++
	require.NoError(t, writeSynced(s.cfg.FS, path, content))
	return name + quarantineSuffix
}
