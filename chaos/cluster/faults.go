//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/netbed"
	"github.com/flightd/flightd/internal/proctest"
)

// fault is a kind of fault.
type fault struct {
	name string
	// what of its victim it needs for itself, so that two faults at once do not fight for it: a process, that of a caller or a
	// worker, links, the provider, or everything but callers and workers.
	needs string
	// victim chooses whom it hits, by chance.
	victim func(b *bed) string
	// lasts is how long it lasts at most; 0: faultLasts.
	lasts time.Duration
	// begin starts the fault. heal ends it, and says what it has done: a count, and the same in words.
	begin func(b *bed, victim string, lasts time.Duration) (heal healFunc, err error)
}

type healFunc func() (bites int, bite string, err error)

const (
	needsProcess  = "process"
	needsCaller   = "process of a caller or a worker"
	needsLinks    = "links"
	needsProvider = "provider"
	needsAll      = "all"
)

const (
	faultNodeKilled  = "node killed"
	faultNodeStopped = "node stopped, which hands leadership over"
)

// faultLasts is how long most faults last at most.
const faultLasts = 9 * time.Second

// leaderOrNode is the leader two times in three, else another node.
func leaderOrNode(b *bed) string {
	leader := b.leaderNow()
	if leader == "" || b.random.IntN(3) == 0 {
		return b.names[b.random.IntN(len(b.names))]
	}
	return leader
}

func anyWorker(b *bed) string { return fmt.Sprint("worker-", b.random.IntN(len(b.working))) }

// allFaults returns every kind of fault that this bed can have.
func allFaults(b *bed) []fault {
	all := slices.Concat(processFaults(), linkFaults(b), diskFaults())
	for _, t := range []trouble{troubleLost, troubleErrors, troubleRefuses, troubleLate, troubleSlow} {
		all = append(all, fault{"provider " + string(t), needsProvider, func(*bed) string { return "provider" }, 0,
			func(b *bed, _ string, _ time.Duration) (healFunc, error) {
				b.books.setTrouble(t)
				return func() (int, string, error) {
					bites := b.books.setTrouble("")
					return bites, fmt.Sprintf("%d requests met it", bites), nil
				}, nil
			}})
	}
	if b.etcd != nil {
		all = append(all, etcdFaults()...)
	}
	return slices.DeleteFunc(all, func(f fault) bool { return slices.Contains(b.missing, f.name) })
}

// lacks returns the names of the faults that this machine, or a user namespace, cannot have.
func (b *bed) lacks() (missing []string) {
	var lacking []string
	if b.inMemory {
		lacking = []string{"disk stalls", "power cut", "the disk is rolled back"} // they need a block device
	}
	try := func(how netbed.Impairment) error {
		heal, err := b.impair(how, b.between(b.names[0], b.names[1]))
		if err == nil {
			_, _, err = heal()
		}
		return err
	}
	require.NoError(b.t, try(netbed.Impairment{Loss: 100}), "faults of links need nf_tables in the kernel: as root, `modprobe nf_tables`")
	if try(netbed.Impairment{Delay: time.Millisecond}) != nil { // it needs NFQUEUE in the kernel
		lacking = append(lacking, "slow and reorder packets")
	}
	for _, f := range slices.Concat(linkFaults(b), diskFaults()) {
		if slices.ContainsFunc(lacking, func(part string) bool { return strings.Contains(f.name, part) }) {
			missing = append(missing, f.name)
		}
	}
	return missing
}

func processFaults() []fault {
	kill := func(victims func(b *bed, victim string) []string) func(b *bed, victim string, _ time.Duration) (healFunc, error) {
		return func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			names := victims(b, victim)
			for _, name := range names {
				b.nodes[name].Kill()
			}
			return func() (int, string, error) {
				for _, name := range names {
					b.launch(name)
				}
				return len(names), fmt.Sprintf("%v ended by SIGKILL", names), nil
			}, nil
		}
	}
	only := func(_ *bed, victim string) []string { return []string{victim} }
	freeze := func(times float64) fault {
		return fault{fmt.Sprintf("worker stands still for %v sessions", times), needsCaller, anyWorker, time.Duration(times * float64(workerSession)),
			func(b *bed, victim string, _ time.Duration) (healFunc, error) {
				return b.freeze(b.working[workerNumber(victim)])
			}}
	}
	restart := func(name, offset string) fault {
		return fault{name, needsProcess, leaderOrNode, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			b.nodes[victim].Kill()
			b.launch(victim, "FLIGHTD_WALL_OFFSET="+offset)
			return func() (int, string, error) {
				seen := b.clockOf(victim)
				b.nodes[victim].Kill()
				b.launch(victim)
				return boolInt(seen.Abs() > time.Hour), fmt.Sprintf("the others saw its clock %v off", seen), nil
			}, nil
		}}
	}
	return []fault{
		{faultNodeKilled, needsProcess, leaderOrNode, 0, kill(only)},
		{"most nodes killed", needsAll, leaderOrNode, 0, kill(func(b *bed, victim string) []string {
			return append([]string{victim}, b.others(victim)[:len(b.names)/2]...)
		})},
		{"all nodes killed", needsAll, leaderOrNode, 0, kill(func(b *bed, _ string) []string { return b.names })},
		{faultNodeStopped, needsProcess, leaderOrNode, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			led := b.leaderNow() == victim
			err := b.nodes[victim].Stop(20 * time.Second)
			return func() (int, string, error) {
				b.launch(victim)
				return 1, fmt.Sprintf("it ended by SIGTERM; it led: %v", led), nil
			}, err
		}},
		{"node started again and again", needsProcess, leaderOrNode, 0, func(b *bed, victim string, lasts time.Duration) (healFunc, error) {
			times := 0
			for until := time.Now().Add(lasts / 2); time.Now().Before(until); times++ {
				b.nodes[victim].Kill()
				b.launch(victim)
				time.Sleep(time.Duration(200+b.random.IntN(900)) * time.Millisecond)
			}
			return func() (int, string, error) { return times, fmt.Sprintf("%d kills", times), nil }, nil
		}},
		{"node frozen", needsProcess, leaderOrNode, 20 * time.Second, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			return b.freeze(b.nodes[victim])
		}},
		{"callers frozen", needsCaller, func(b *bed) string { return b.someCallers() }, 20 * time.Second, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			return b.freeze(b.calling[victim])
		}},
		{"worker killed", needsCaller, anyWorker, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			i := workerNumber(victim)
			b.working[i].Kill()
			return func() (int, string, error) { b.working[i] = b.startWorker(i); return 1, "it ended by SIGKILL", nil }, nil
		}},
		{"lease epoch raised by an operator", needsAll, leaderOrNode, time.Second, func(b *bed, _ string, _ time.Duration) (healFunc, error) {
			said, err := b.run("cluster", "raise-lease-epoch", "--reason", "chaos", "--yes")
			return func() (int, string, error) { return boolInt(err == nil), strings.TrimSpace(said), nil }, err
		}},
		freeze(0.5), freeze(1), freeze(3),
		restart("clock six hours ahead", "6h"), restart("clock six hours behind", "-6h"),
	}
}

// freeze stops a process where it is. It bites when the process has used no processor meanwhile.
func (b *bed) freeze(p *proctest.Process) (healFunc, error) {
	began, err := time.Now(), p.Freeze()
	return func() (int, string, error) {
		state := stateOf(p.Pid())
		return boolInt(state == "T"), fmt.Sprintf("state %s for %v", state, time.Since(began).Round(time.Millisecond)), p.Thaw()
	}, err
}

// stateOf returns the letter of a process's state, as proc(5) has it.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if _, rest, found := strings.Cut(string(text), ") "); found {
		return rest[:1]
	}
	return fmt.Sprint(err)
}

func boolInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

// linkFaults returns the faults of links between nodes, and between them, etcd and callers.
func linkFaults(b *bed) []fault {
	impair := func(name string, how netbed.Impairment, links func(b *bed, victim string) []netbed.Link) fault {
		return fault{name, "", leaderOrNode, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			return b.impair(how, links(b, victim))
		}}
	}
	cut := netbed.Impairment{Loss: 100}
	all := []fault{
		{"callers cut off from all nodes", "", leaderOrNode, 25 * time.Second, func(b *bed, _ string, _ time.Duration) (healFunc, error) { // longer than a session lives
			return b.impair(cut, b.between("callers", append(slices.Clone(b.names), "balancer")...))
		}},
		impair("node cut off", cut, func(b *bed, v string) []netbed.Link { return b.linksOf(v, 0, true, true) }),
		impair("node cut off from what others send", cut, func(b *bed, v string) []netbed.Link { return b.linksOf(v, 0, true, false) }),
		impair("node cut off from sending to others", cut, func(b *bed, v string) []netbed.Link { return b.linksOf(v, 0, false, true) }),
		impair("node cut off from the ledger alone", cut, func(b *bed, v string) []netbed.Link { return b.linksOf(v, nodesPort, true, true) }),
		impair("node cut off from etcd alone", cut, func(b *bed, v string) []netbed.Link { return b.linksOf(v, etcdPort, true, true) }),
		impair("node cut off from callers", cut, func(b *bed, v string) []netbed.Link { return b.between(v, "callers", "balancer") }),
		impair("one link between nodes cut", cut, func(b *bed, v string) []netbed.Link {
			return b.between(v, b.others(v)[b.random.IntN(len(b.names)-1)])
		}),
		impair("bridge: one node sees all, the others only it", cut, func(b *bed, v string) []netbed.Link { return b.among(b.others(v)) }),
		impair("the nodes lose a third of the packets between them", netbed.Impairment{Loss: 33}, func(b *bed, v string) []netbed.Link { return b.linksOf(v, 0, true, true) }),
		impair("the links of a node are slow and reorder packets", netbed.Impairment{Delay: 80 * time.Millisecond, Jitter: 60 * time.Millisecond},
			func(b *bed, v string) []netbed.Link { return b.linksOf(v, 0, true, true) }),
		impair("callers lose a fifth of their packets", netbed.Impairment{Loss: 20}, func(b *bed, v string) []netbed.Link { return b.between(v, "callers") }),
		{"links of a node flap", needsLinks, leaderOrNode, 0, func(b *bed, victim string, lasts time.Duration) (healFunc, error) {
			bites := 0
			for until := time.Now().Add(lasts / 2); time.Now().Before(until); {
				heal, err := b.impair(cut, b.linksOf(victim, 0, true, true))
				if err != nil {
					return nil, err
				}
				time.Sleep(time.Duration(200+b.random.IntN(1800)) * time.Millisecond)
				dropped, _, err := heal()
				if err != nil {
					return nil, err
				}
				bites += dropped
				time.Sleep(time.Duration(100+b.random.IntN(500)) * time.Millisecond)
			}
			return func() (int, string, error) { return bites, fmt.Sprintf("%d packets dropped", bites), nil }, nil
		}},
	}
	for _, majority := range []struct {
		name string
		port int
	}{{"no majority of the ledger", nodesPort}, {"no majority at all", 0}} {
		all = append(all, fault{majority.name, needsAll, leaderOrNode, 40 * time.Second, func(b *bed, _ string, _ time.Duration) (healFunc, error) {
			var links []netbed.Link
			for _, name := range b.names {
				links = append(links, b.linksOf(name, majority.port, true, false)...)
			}
			return b.impair(cut, links)
		}})
	}
	if len(b.names) > 3 {
		all = append(all, impair("ring: each node sees a majority, no two the same one", cut, func(b *bed, _ string) (links []netbed.Link) {
			for i, name := range b.names {
				links = append(links, b.between(name, b.names[(i+2)%len(b.names)])...)
			}
			return links
		}))
	}
	return all
}

// linksOf returns the links between a node and the rest of the cluster: what comes in, what goes out, or both. port is nodesPort, for links to
// the other nodes, etcdPort, for links to where etcd runs, or 0 for both.
func (b *bed) linksOf(node string, port int, in, out bool) (links []netbed.Link) {
	var rest []string
	if b.etcd == nil || port != etcdPort {
		rest = b.others(node)
	}
	if b.etcd != nil && port != nodesPort {
		rest = append(rest, ownMembers()...)
		if port == etcdPort {
			port = etcdClientPort
		}
	}
	for _, other := range rest {
		if in {
			links = append(links, netbed.Link{From: b.host(other), To: b.host(node), Port: port})
		}
		if out {
			links = append(links, netbed.Link{From: b.host(node), To: b.host(other), Port: port})
		}
	}
	return links
}

// between returns the links between a host and others, in both directions.
func (b *bed) between(host string, others ...string) (links []netbed.Link) {
	for _, other := range others {
		links = append(links, netbed.BothWays(b.host(host), b.host(other))...)
	}
	return links
}

// among returns the links between some hosts, in both directions.
func (b *bed) among(hosts []string) (links []netbed.Link) {
	for i, host := range hosts {
		links = append(links, b.between(host, hosts[i+1:]...)...)
	}
	return links
}

// impair makes links bad. It bites when packets were dropped or delayed.
func (b *bed) impair(how netbed.Impairment, links []netbed.Link) (healFunc, error) {
	f, err := b.net.Impair(how, links...)
	if err != nil {
		return nil, err
	}
	return func() (int, string, error) {
		packets, err := f.Heal()
		return packets, fmt.Sprintf("%d packets", packets), err
	}, nil
}

// etcdFaults returns the faults of members of an etcd of its own.
func etcdFaults() []fault {
	leader := func(b *bed) string { return b.etcdLeader() }
	return []fault{
		{"etcd's leader killed", needsProcess, leader, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			b.etcd.running[victim].Kill()
			return func() (int, string, error) { b.launchMember(victim); return 1, "it ended by SIGKILL", nil }, nil
		}},
		{"etcd's leader frozen", needsProcess, leader, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			return b.freeze(b.etcd.running[victim])
		}},
		{"all of etcd frozen", needsAll, func(*bed) string { return "etcd" }, 30 * time.Second, func(b *bed, _ string, _ time.Duration) (healFunc, error) {
			var heals []healFunc
			for _, name := range ownMembers() {
				heal, err := b.freeze(b.etcd.running[name])
				if err != nil {
					return nil, err
				}
				heals = append(heals, heal)
			}
			return func() (bites int, said string, err error) {
				var all []string
				for _, heal := range heals {
					count, text, failed := heal()
					bites, all, err = bites+count, append(all, text), errors.Join(err, failed)
				}
				return bites, strings.Join(all, ", "), err
			}, nil
		}},
		{"etcd's members cut off from each other", "", leader, 0, func(b *bed, _ string, _ time.Duration) (healFunc, error) {
			return b.impair(netbed.Impairment{Loss: 100}, b.among(ownMembers()))
		}},
	}
}
