//go:build linux

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

// etcdClientPort is the port of an etcd of its own for the nodes; its members talk on etcdPort.
const etcdClientPort = 2379

// ownMembers are the hosts of an etcd of its own.
func ownMembers() []string { return []string{"etcd-a", "etcd-b", "etcd-c"} }

// etcd is an etcd on hosts of its own.
type etcd struct {
	binary  string
	members []etcdtest.Member
	running map[string]*proctest.Process
	env     []string // the settings of the nodes
}

// startEtcd starts an etcd on hosts of its own, with the certificates of one CA.
func (b *bed) startEtcd() {
	binary, err := etcdtest.Binary()
	require.NoError(b.t, err)
	b.etcd = &etcd{binary: binary, running: make(map[string]*proctest.Process)}
	args := []string{"cluster", "found", "--out", b.path("etcd-certs"), "--first-token-file", b.path("unused")}
	for _, name := range ownMembers() {
		args = append(args, "--node", fmt.Sprintf("%s=%s:%d", name, b.host(name).Address, etcdClientPort))
		file := func(file string) string { return b.path(filepath.Join("etcd-certs", name, file)) }
		b.etcd.members = append(b.etcd.members, etcdtest.Member{
			Name: name, Dir: b.path("data-" + name), Client: fmt.Sprintf("%s:%d", b.host(name).Address, etcdClientPort), Peer: fmt.Sprintf("%s:%d", b.host(name).Address, etcdPort),
			Cert: file("node.crt"), Key: file("node.key"), CA: file("ca.crt"),
		})
	}
	said, err := exec.CommandContext(b.t.Context(), b.opts.Flightd, args...).CombinedOutput()
	require.NoError(b.t, err, "%s", said)
	first := b.etcd.members[0]
	b.etcd.env = []string{"FLIGHTD_ETCD=" + strings.Join(etcdtest.URLs(b.etcd.members), ","), "FLIGHTD_ETCD_CERT=" + first.Cert, "FLIGHTD_ETCD_KEY=" + first.Key, "FLIGHTD_ETCD_CA=" + first.CA}
	for _, name := range ownMembers() {
		b.launchMember(name)
	}
	for _, p := range b.etcd.running {
		b.awaitReady(p)
	}
}

func (b *bed) launchMember(name string) {
	spec := etcdtest.Spec(b.etcd.binary, b.etcd.members, slices.Index(ownMembers(), name))
	spec.Start, spec.Env = b.host(name).Start, []string{"PATH=" + os.Getenv("PATH")}
	b.etcd.running[name] = b.start(spec)
}

var becameLeader = regexp.MustCompile(`became leader at term (\d+)`)

// etcdLeader returns the member that leads an etcd of its own, by the logs of its members.
func (b *bed) etcdLeader() (leader string) {
	newest := 0
	for i := range b.etcd.members {
		log, err := os.ReadFile(b.etcd.members[i].Dir + ".log")
		require.NoError(b.t, err)
		for _, said := range becameLeader.FindAllSubmatch(log, -1) {
			term, err := strconv.Atoi(string(said[1]))
			require.NoError(b.t, err)
			if term > newest {
				newest, leader = term, b.etcd.members[i].Name
			}
		}
	}
	require.NotEmpty(b.t, leader)
	return leader
}
