package clusterstore

import (
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

// Config is what a store needs to know. Only Dir has no default.
type Config struct {
	// Dir holds everything that the ledger keeps. Only one process may have it open.
	Dir string
	// NodeID names this voter for ever; empty: the one in Dir, or a new UUID. Another one than Dir's is refused.
	NodeID string
	// ClusterID names the ledger; empty: the one in Dir, or a new UUID. Another one than Dir's is refused.
	ClusterID string
	// FS is the file system; nil: the operating system's. Tests crash an in-memory one.
	FS vfs.FS
	// Clock tells wall and monotonic time; the zero Clock is the machine's.
	Clock Clock
	// Memory bounds what the store holds in memory.
	Memory Memory
	// Log bounds the raft log.
	Log LogConfig
	// Guard says when to refuse work and when to die.
	Guard Guard
	// Logger gets warnings and errors of raft and Pebble; nil: nothing is logged.
	Logger *slog.Logger
	// Events are told what happens.
	Events Events

	peers   *peers                            // more voters than this one; nil: it is alone
	wrapLog func(raft.LogStore) raft.LogStore // a fault under the watchdog; nil: none
}

// peers is how this node reaches others.
type peers struct {
	transport raft.Transport
	voters    []raft.Server
}

// Memory bounds what the store holds in memory. A zero field means its default.
type Memory struct {
	BlockCache int64  // bytes of blocks read, shared by log and state; 64 MiB
	MemTable   uint64 // bytes of one table of recent writes; log and state have up to 3 each; 32 MiB
	Flights    int    // decoded flights at hand, 1 to 3 KiB each with their short bodies; 131,072
}

// memTables is how many tables of recent writes a database may have before writes wait for the disk.
const memTables = 3

// cache is what Pebble's cache must be allowed: it takes the tables of recent writes out of it, too.
func (m Memory) cache() int64 { return m.BlockCache + 2*memTables*int64(m.MemTable) }

// LogConfig bounds the raft log. A zero field means its default.
type LogConfig struct {
	// SnapshotBytes is how many bytes of entries are appended between two snapshots; 256 MiB. Too little: a
	// checkpoint is taken all the time. Too much: the log takes that much disk.
	SnapshotBytes uint64
	// Trailing is how many entries are kept behind a snapshot, for followers that lag; 4,096.
	Trailing uint64
}

// Guard says when to refuse work and when to die. A zero field means its default.
type Guard struct {
	// Stall is how long one write of the raft log may take; 5 s. A leader with a stalled disk would stay leader
	// for ever, so a write that takes longer kills the process.
	Stall time.Duration
	// MinFree is how many bytes of disk must be free for Submit, Open and Import; 256 MiB. Reports are accepted below it.
	MinFree uint64
	// Patience is how long Report waits for a commit before it spools, up to a quarter longer; 200 ms.
	Patience time.Duration
	// Kill ends the process at once and does not return: something that the ledger cannot do without failed, and nothing may be
	// answered any more. why wraps what the system said, where it was the system. nil: the function Kill.
	Kill func(why error)
}

// Events are told what happens; each function may be nil, must not block and must not call the store.
type Events struct {
	// Appended: entries were written to the raft log and synced, in d.
	Appended func(entries int, d time.Duration)
	// Applied: commands of so many entries were applied, in d.
	Applied func(entries, commands int, d time.Duration)
	// Leader: this node began or ceased to lead.
	Leader func(leading bool)
	// Snapshot: one was taken at index, in d; err says why not.
	Snapshot func(index uint64, d time.Duration, err error)
	// Spooled: the report of a key was written to the spool; Unspooled: it was committed at last.
	Spooled   func(key flight.Key)
	Unspooled func(key flight.Key)
	// Late: a report was committed that nobody waits for any more, so that only this tells what became of it.
	Late func(number uint32, outcome flight.Outcome, reply flight.Reply)
	// SpoolDamaged: a file of the spool could not be read, and was put aside.
	SpoolDamaged func(file string, err error)
	// Stalled: a write of the raft log took longer than Guard.Stall. The process ends right after it.
	Stalled func(op string, after time.Duration)
	// Room: less than Guard.MinFree of disk is free, so that nothing new is taken, or again enough.
	Room func(enough bool, free uint64)
	// Jumped: the ledger's time was set forward to the wall clock at the start of a lone voter.
	Jumped func(from, to flight.Time)
	// Expired: the retention of so many flights ended.
	Expired func(flights int)
}

// exitSoftware is the code of sysexits.h for an internal error.
const exitSoftware = 70

// Kill writes why to standard error and ends the process with code 70.
func Kill(why error) {
	_, _ = io.WriteString(os.Stderr, "flightd: "+why.Error()+"\n") // there is nowhere else to say it
	os.Exit(exitSoftware)
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("clusterstore: Config.Dir is empty")
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Clock.Wall == nil || c.Clock.Mono == nil {
		c.Clock = machineClock(clock.SinceBoot)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	setDefault(&c.Memory.BlockCache, 64<<20)
	setDefault(&c.Memory.MemTable, 32<<20)
	setDefault(&c.Memory.Flights, 1<<17)
	setDefault(&c.Log.SnapshotBytes, 256<<20)
	setDefault(&c.Log.Trailing, 4096)
	setDefault(&c.Guard.Stall, 5*time.Second)
	setDefault(&c.Guard.MinFree, 256<<20)
	setDefault(&c.Guard.Patience, 200*time.Millisecond)
	if c.Guard.Kill == nil {
		c.Guard.Kill = Kill
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
