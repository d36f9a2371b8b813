package node

import (
	"io/fs"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
)

// The memory limit is the smallest one of the process's cgroup and of its parents, in both versions of cgroups.
func TestMemoryOf_Cgroups(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no cgroups": {nil, math.MaxInt64},
		"a container, whose group is the root": {map[string]string{
			"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		"without a limit": {map[string]string{
			"/proc/self/cgroup": "0::/user.slice\n", "/sys/fs/cgroup/user.slice/memory.max": "max\n"}, math.MaxInt64},
		"the limit of a parent is smaller": {map[string]string{
			"/proc/self/cgroup": "0::/system.slice/flightd.service\n", "/sys/fs/cgroup/system.slice/flightd.service/memory.max": "1073741824",
			"/sys/fs/cgroup/system.slice/memory.max": "268435456"}, 256 << 20},
		"version 1": {map[string]string{
			"/proc/self/cgroup":                           "5:cpu,cpuacct:/a\n4:memory:/docker/x\n0::/\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712", "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "536870912"}, 512 << 20},
	} {
		require.Equal(t, c.want, memoryOf(func(file string) ([]byte, error) {
			if text, ok := c.files[file]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		}), name)
	}
}

// The caches and the memtables of both databases, and the cached flights at 3 KiB, fit into the limit of the collector.
func TestStoreMemory_FitsTheLimit(t *testing.T) {
	require.Equal(t, clusterstore.Memory{BlockCache: 64 << 20, MemTable: 32 << 20, Flights: 1 << 17}, storeMemory(math.MaxInt64))
	for _, limit := range []int64{128 << 20, 384 << 20, 448 << 20, gcBound} {
		m := storeMemory(limit)
		require.Less(t, m.BlockCache+6*int64(m.MemTable)+int64(m.Flights)*(3<<10), limit, "%d MiB", limit>>20)
	}
}
