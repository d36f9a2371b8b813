package arch

import "strings"

// Module is the module's path.
const Module = "github.com/flightd/flightd"

// room is a package, with everything below its folder, and the floor on which it stands.
type room struct {
	path  string
	floor int
}

// rooms from the ground to the roof. A room may import those on lower floors, and its own subfolders. Two rooms on one
// floor do not see each other.
func rooms() []room {
	return []room{
		{"flight", 0},
		{"internal/clock", 0},
		{"internal/crashpoint", 0},
		{"internal/gate", 0},
		{"internal/horizon", 0},
		{"effect", 1},
		{"lease", 2},
		{"clusterstore", 2},
		{"internal/answer", 3},
		{"internal/wire", 3},
		{"internal/runner", 3},
		{"executor", 4},
		{"client", 4},
		{"remote", 5},
		{"saga", 5},
		{"action", 5},
		{"httpapi", 6},
		{"console", 6},
		{"metrics", 6},
		{"node", 7},
		{"drill", 7},
		{"cmd", 8},
		{"chaos", 8},
		{"bench", 8},
		{"clients", 8},
		{"internal/release", 8},
		{"flightdtest", 8},
		{"httpapi/httpapitest", 9},
	}
}

// fence keeps a library where it belongs. Only the rooms named may import it, and the tests of those behind them.
type fence struct {
	library string
	rooms   []string
	tests   []string
}

func fences() []fence {
	return []fence{
		{"go.etcd.io/etcd/server", []string{"lease/etcdlease/etcdtest", "node", "bench"}, []string{"lease/etcdlease"}},
		{"go.etcd.io/etcd", []string{"lease/etcdlease", "node", "bench"}, nil},
		{"go.etcd.io/bbolt", []string{"node"}, nil},
		{"github.com/hashicorp/raft", []string{"clusterstore", "bench"}, nil},
		{"github.com/cockroachdb/pebble", []string{"clusterstore", "bench"}, nil},
		{"github.com/prometheus", []string{"metrics"}, nil},
		{"github.com/hashicorp/go-metrics", []string{"metrics"}, nil},
		{"github.com/spf13/cobra", []string{"cmd"}, nil},
		{"github.com/santhosh-tekuri/jsonschema", []string{"httpapi/openapi/openapitest"}, nil},
		{"testing", []string{"flight/flighttest", "lease/leasetest", "lease/etcdlease/etcdtest", "clusterstore/storetest", "executor/executortest", "flightdtest", "httpapi/httpapitest"}, []string{""}},
	}
}

// light are the packages that a client's program is made of: nothing that they import, however far away, may be one of
// the heavy libraries.
func light() []string {
	return []string{"client", "effect", "flight", "internal/clock", "internal/gate", "internal/runner", "internal/wire"}
}

// heavy are the libraries that a client does not carry.
func heavy() []string {
	return []string{"go.etcd.io/etcd", "github.com/hashicorp/raft", "github.com/cockroachdb/pebble", "google.golang.org/grpc", "github.com/prometheus"}
}

// roomOf finds the room that a package path, relative to the module, belongs to: the one with the longest path.
func roomOf(path string) (r room, found bool) {
	for _, c := range rooms() {
		if within(path, c.path) && len(c.path) > len(r.path) {
			r, found = c, true
		}
	}
	return r, found
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}
