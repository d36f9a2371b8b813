package node

import (
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/flightd/flightd/clusterstore"
)

// The garbage collector settings of a process that only runs a node. Most of its objects are short-lived, so the
// collector waits until the heap has grown by gcPercent, up to a limit of gcBound. Including memory outside the heap, a
// node stays below 1 GiB for any amount of stored data. A node of flightd dev shares a developer's machine.
const (
	gcPercent = 300
	gcBound   = 896 << 20

	devPercent  = 100
	devBound    = gcBound / 2
	devSegments = 16 << 20 // bytes of each file of etcd's log, which etcd allocates two at a time
)

// Tune sets GOMAXPROCS, GOGC and GOMEMLIMIT for a process that only runs a node with this configuration. A variable of that
// name in the environment takes precedence. The memory limit follows the process's cgroup. Programs that embed a node should
// not call Tune.
//
// A goroutine in fsync blocks its P until the runtime notices, and several goroutines sync logs all the time. So
// GOMAXPROCS is doubled, and other goroutines run meanwhile. Of several nodes that share the machine, each gets its part.
func Tune(cfg *Config) {
	nodes, percent, bound := 1+cfg.Process.Neighbours, gcPercent, int64(gcBound)
	if cfg.NoCredentials {
		percent, bound, wal.SegmentSizeBytes = devPercent, devBound, devSegments
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(2, 2*runtime.GOMAXPROCS(0)/nodes))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(min(bound, heapWithin(memoryOf(os.ReadFile))) / int64(nodes))
	}
}

// heapWithin returns the memory limit of the collector in a process that may use so many bytes: a quarter is left to the system's
// cache of etcd's database and of the tables, which counts, too.
func heapWithin(limit int64) int64 { return limit / 4 * 3 }

// memoryOf returns how many bytes the cgroups of this process let it use, by their files; math.MaxInt64 if they have no limit.
func memoryOf(read func(string) ([]byte, error)) int64 {
	limit := int64(math.MaxInt64)
	lower := func(file string) {
		text, err := read(file)
		if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	groups, _ := read("/proc/self/cgroup") // a system without it has no cgroups
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		root, file := "/sys/fs/cgroup", "memory.max"
		switch controllers {
		case "": // version 2
		case "memory":
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for ; ; group = path.Dir(group) { // a limit of a parent counts, too
			lower(path.Join(root, group, file))
			if group == "/" || group == "." || group == "" {
				break
			}
		}
	}
	return limit
}

// storeMemory returns the sizes of the ledger's caches, which are smaller in a process with little memory.
func storeMemory(limit int64) clusterstore.Memory {
	part := min(1, float64(limit)/gcBound)
	return clusterstore.Memory{
		BlockCache: max(8<<20, int64(part*(64<<20))), MemTable: max(4<<20, uint64(part*(32<<20))), Flights: max(1<<12, int(part*(1<<17))),
	}
}
