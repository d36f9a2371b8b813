package arch

import "strings"

// Module is the module's path.
const Module = "github.com/flightd/flightd"

// layeredPackage is a package, with all packages in its folder, and its layer.
type layeredPackage struct {
	path  string
	layer int
}

// layers returns all packages from the lowest layer up. A package may import packages of lower layers and its own
// subfolders, and no other package of its own layer.
func layers() []layeredPackage {
	return []layeredPackage{
		{"internal/strictjson", -1},
		{"internal/yamlfile", -1},
		{"docs", 0},
		{"flight", 0},
		{"internal/clock", 0},
		{"internal/crashpoint", 0},
		{"internal/gate", 0},
		{"internal/deadline", 0},
		{"internal/durable", 0},
		{"internal/proctest", 0},
		{"effect", 1},
		{"internal/cert", 1},
		{"lease", 2},
		{"clusterstore", 2},

		{"internal/answer", 3},
		{"httpapi/wire", 3},
		{"internal/runner", 3},
		{"internal/auth", 4},
		{"internal/notify", 4},
		{"executor", 4},
		{"client", 4},
		{"remote", 5},
		{"saga", 4},
		{"saga/driver", 5},
		{"client/saga", 5},
		{"action", 5},
		{"httpapi", 6},
		{"console", 6},
		{"metrics", 6},
		{"traces", 6},
		{"node", 7},
		{"drill", 7},
		{"cmd", 8},
		{"chaos", 8},
		{"examples", 8},
		{"clients", 8},
		{"deploy", 8},
		{"flightdtest", 8},
		{"httpapi/httpapitest", 9},
	}
}

// libraryRule lists the packages that may import a library, and the packages whose tests may.
type libraryRule struct {
	library      string
	packages     []string
	testPackages []string
}

func libraryRules() []libraryRule {
	return []libraryRule{
		{"go.etcd.io/etcd/server/v3/lease", []string{"lease/etcdlease", "node"}, nil}, // the types of an embedded server's renewal
		{"go.etcd.io/etcd/server", []string{"lease/etcdlease/etcdtest", "node", "chaos/bench"}, []string{"lease/etcdlease"}},
		{"go.etcd.io/etcd", []string{"lease/etcdlease", "node", "chaos/bench", "chaos/cluster"}, nil},
		{"go.etcd.io/bbolt", []string{"node"}, nil},
		{"github.com/vishvananda", []string{"chaos"}, nil},
		{"github.com/hashicorp/raft", []string{"clusterstore", "chaos/bench"}, nil},
		{"github.com/cockroachdb/pebble", []string{"clusterstore", "chaos/bench"}, nil},
		{"github.com/prometheus", []string{"metrics"}, nil},
		{"github.com/hashicorp/go-metrics", []string{"metrics"}, nil},
		{"go.opentelemetry.io", []string{"traces"}, []string{"node"}},
		{"github.com/spf13/cobra", []string{"cmd"}, nil},
		{"github.com/go-json-experiment/json", []string{"internal/strictjson", "flight", "httpapi/wire"}, []string{"httpapi"}},
		{"github.com/santhosh-tekuri/jsonschema", []string{"httpapi/openapitest"}, nil},
		{"testing", []string{"flight/flighttest", "lease/leasetest", "lease/etcdlease/etcdtest", "clusterstore/storetest", "executor/executortest", "flightdtest", "httpapi/httpapitest"}, []string{""}},
	}
}

// clientPackages returns the packages that a client's program is built from. None of their transitive dependencies may
// be a heavy library.
func clientPackages() []string {
	return []string{"client", "effect", "flight", "internal/clock", "internal/durable", "internal/gate", "internal/runner", "internal/strictjson", "httpapi/wire"}
}

// heavyLibraries returns the libraries that a client's program must not contain.
func heavyLibraries() []string {
	return []string{"go.etcd.io/etcd", "github.com/hashicorp/raft", "github.com/cockroachdb/pebble", "google.golang.org/grpc", "github.com/prometheus", "go.opentelemetry.io"}
}

// layerOf finds the entry of layers for a package path relative to the module: the one with the longest matching path.
func layerOf(path string) (r layeredPackage, found bool) {
	for _, c := range layers() {
		if within(path, c.path) && len(c.path) > len(r.path) {
			r, found = c, true
		}
	}
	return r, found
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}
