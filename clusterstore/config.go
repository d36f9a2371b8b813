package clusterstore

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

// Config configures a Store. Only Dir has no default.
type Config struct {
	// Dir is the data directory. Only one process may have it open.
	Dir string
	// NodeID names this voter for its whole life; empty: the one in Dir, or a new UUID. Open rejects an id that
	// differs from Dir's.
	NodeID string
	// ClusterID names the ledger; empty: the one in Dir, or a new UUID. Open rejects an id that differs from Dir's.
	ClusterID string
	// FS is the file system; nil: the operating system's. Tests use one in memory that can crash.
	FS vfs.FS
	// Clock supplies wall and monotonic time; a function that is nil is the system's.
	Clock Clock
	// Memory limits the memory of the store.
	Memory Memory
	// Log limits the raft log.
	Log LogConfig
	// Limits says when the store rejects work, verifies its tables, and ends the process.
	Limits Limits
	// Logger receives warnings and errors of raft and Pebble; nil: nothing is logged.
	Logger *slog.Logger
	// Events are the callbacks for logs, metrics and tests.
	Events Events
	// CheckPast compares what the disk held with records of it elsewhere, before raft starts. Its error is returned by
	// Open, and the directory is unchanged. nil: nothing is compared.
	CheckPast func(context.Context, Past) error
	// Peers is how this voter reaches the others; nil: a lone ledger, whose only voter is this node.
	Peers *Peers
}

// Memory limits the memory of the store. A zero field means its default.
type Memory struct {
	BlockCache int64  // bytes of the block cache, shared by log and state; 64 MiB
	MemTable   uint64 // bytes of one memtable; log and state have up to 3 each; 32 MiB
	Flights    int    // decoded flights in the record cache, 1 to 3 KiB each with their inline bodies; 131,072
}

// maxMemTables is how many memtables a database may have before writes wait for a flush.
const maxMemTables = 3

// cacheBytes is the size of Pebble's cache, which must also hold the memtables of both databases.
func (m Memory) cacheBytes() int64 { return m.BlockCache + 2*maxMemTables*int64(m.MemTable) }

// LogConfig limits the raft log. A zero field means its default.
type LogConfig struct {
	// SnapshotBytes is how many bytes of entries are appended between two snapshots; 256 MiB. Too small: snapshots
	// are taken all the time. Too large: the log takes that much disk.
	SnapshotBytes uint64
	// Trailing is how many bytes of the newest entries a snapshot leaves in the log, roughly; two SnapshotBytes, so that a
	// voter that was away for less needs no snapshot. A lone ledger keeps a quarter of SnapshotBytes, for readers of the
	// feed. Too small: voters that lag are sent the whole state.
	Trailing uint64

	wrap func(raft.LogStore) raft.LogStore // for tests: wraps the log below the watchdog; nil: no wrapper
}

// Limits says when the store rejects work and when it ends the process. A zero field means its default.
type Limits struct {
	// StallTimeout is how long one write of the raft log may take; 5 s. A leader with a stalled disk would stay
	// leader while nothing can be written, so a slower write ends the process.
	StallTimeout time.Duration
	// MinFree is how many bytes of disk must be free for Submit, Open and Import; 256 MiB. Reports are accepted below
	// it.
	MinFree uint64
	// CommitTimeout is how long Report waits for a commit before it writes the report to the spool, up to a quarter
	// longer; 200 ms.
	CommitTimeout time.Duration
	// VerifyEvery is the time between two readings of all tables, which compare their checksums; 24 h. Too short: the disk
	// is always read. Too long: damage is found only when the block is needed.
	VerifyEvery time.Duration
	// Kill ends the process at once and must not return. It is called when a part that the ledger cannot run without
	// has failed; from then on no caller may be answered. why wraps the operating system's error where there is one.
	// nil: the function Kill.
	Kill func(why error)

	levels flight.Levels // for tests, which invent feature levels; the zero value has the levels of this build
}

// Events are callbacks. Each may be nil, must not block and must not call the store.
type Events struct {
	// Appended: entries were written to the raft log and synced, in d.
	Appended func(entries int, d time.Duration)
	// Applied: the commands of some entries were applied, in d. The arguments are the numbers of entries and commands.
	Applied func(entries, commands int, d time.Duration)
	// Leader: this node became leader, or ceased to be it.
	Leader func(leading bool)
	// Snapshot: a snapshot was taken at index, in d; err is set when it failed.
	Snapshot func(index uint64, d time.Duration, err error)
	// Spooled: the report of a key was written to the spool. Unspooled: it was committed and removed from the spool.
	Spooled   func(key flight.Key)
	Unspooled func(key flight.Key)
	// ReportedLate: a report was committed after its caller had stopped waiting. This event is the only place where
	// its result appears.
	ReportedLate func(number uint32, outcome flight.Outcome, reply flight.Reply)
	// ReportQuarantined: a file of the spool is damaged and was quarantined.
	ReportQuarantined func(file string, err error)
	// Stalled: a write of the raft log took longer than Limits.StallTimeout. The process ends right after it.
	Stalled func(op string, after time.Duration)
	// DiskSpace: less than Limits.MinFree of disk is free, so new work is rejected; or again enough.
	DiskSpace func(enough bool, free uint64)
	// ClockStepped: the ledger's time was set forward: to the wall clock at the start of a lone voter, or to the median of
	// the voters' clocks.
	ClockStepped func(from, to flight.Time)
	// Expired: the retention of flights ended. The argument is their number.
	Expired func(flights int)
}

// exitSoftware is EX_SOFTWARE of sysexits.h: an internal error.
const exitSoftware = 70

// Kill writes why to standard error and ends the process with code 70.
func Kill(why error) {
	_, _ = io.WriteString(os.Stderr, "flightd: "+why.Error()+"\n") // no other place to report a failure of standard error
	os.Exit(exitSoftware)
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("clusterstore: Config.Dir is empty")
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	system := systemClock(clock.SinceBoot)
	if c.Clock.Wall == nil {
		c.Clock.Wall = system.Wall
	}
	if c.Clock.Mono == nil {
		c.Clock.Mono = system.Mono
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Limits.levels.Max == 0 {
		c.Limits.levels = flight.BuiltLevels()
	}
	setDefault(&c.Memory.BlockCache, 64<<20)
	setDefault(&c.Memory.MemTable, 32<<20)
	setDefault(&c.Memory.Flights, 1<<17)
	setDefault(&c.Log.SnapshotBytes, 256<<20)
	if c.Peers != nil {
		setDefault(&c.Log.Trailing, 2*c.Log.SnapshotBytes)
	}
	setDefault(&c.Log.Trailing, c.Log.SnapshotBytes/4)
	setDefault(&c.Limits.StallTimeout, 5*time.Second)
	setDefault(&c.Limits.MinFree, 256<<20)
	setDefault(&c.Limits.CommitTimeout, 200*time.Millisecond)
	setDefault(&c.Limits.VerifyEvery, 24*time.Hour)
	if c.Limits.Kill == nil {
		c.Limits.Kill = Kill
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
