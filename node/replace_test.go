package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// replacement makes a founding directory for the successor of a node, as flightd cluster replace does.
func (c *testCluster) replacement(i, number int) (dir, certificate string) {
	c.t.Helper()
	dir = filepath.Join(c.dir, fmt.Sprint(c.names[i], "-", number))
	f, err := peer.Load(filepath.Join(c.founding, c.names[i]))
	require.NoError(c.t, err)
	made, err := peer.Replace(c.founding, dir, f.ClusterID, c.names[i], f.Nodes)
	require.NoError(c.t, err)
	return dir, made.Certificate()
}

// replace asks node at to replace a node by the bearer of a certificate, until the leader knows that the node is away.
func (c *testCluster) replace(at, i int, certificate string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		status, body := c.askReplace(at, i, certificate)
		require.Contains(c.t, []int{http.StatusOK, http.StatusPreconditionFailed, http.StatusServiceUnavailable}, status, body)
		return status == http.StatusOK
	}, waitLimit, 50*time.Millisecond)
}

func (c *testCluster) askReplace(at, i int, certificate string) (status int, body string) {
	c.t.Helper()
	status, body, err := post(c.nodes[at].server.url()+"/v1/cluster/nodes/"+c.names[i]+"/replace", `{"certificate":"`+certificate+`","reason":"a test"}`)
	require.NoError(c.t, err)
	return status, body
}

// awaitReplaced waits until the new node of a name votes in raft and in etcd.
func (c *testCluster) awaitReplaced(i int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		lead := c.nodes[c.leader()]
		voters, _, err := lead.store.Voters()
		if err != nil || len(voters) != len(c.names) {
			return false
		}
		for _, v := range voters {
			if v.Address == c.names[i] && v.ID != c.nodes[i].cluster.instance {
				return false
			}
		}
		list, err := lead.etcd.client.MemberList(c.t.Context())
		if err != nil || len(list.Members) != len(c.names) {
			return false
		}
		for _, m := range list.Members {
			if m.IsLearner {
				return false
			}
		}
		answer, err := http.Get(lead.server.url() + "/v1/cluster")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		var state wire.Cluster
		if json.NewDecoder(answer.Body).Decode(&state) != nil {
			return false
		}
		for _, n := range state.Nodes {
			if n.Problem != "" {
				return false
			}
		}
		return true
	}, waitLimit, 50*time.Millisecond, "node %s is no voter", c.names[i])
}

// load opens and reports flights at nodes until stop is called, which returns the keys whose report was acknowledged.
func (c *testCluster) load(at ...int) (stop func() []string) {
	var over atomic.Bool
	var running sync.WaitGroup
	var mu sync.Mutex
	var keys []string
	for _, i := range at {
		url := c.nodes[i].server.url()
		running.Go(func() {
			for n := 0; !over.Load(); n++ {
				id := fmt.Sprint("load-", i, "-", n)
				status, body, err := post(url+"/v1/flights:open", `{"action":"pay","id":"`+id+`","input":{"n":1},"nonce":"`+nonce(id)+`","wait_ms":0}`)
				var open wire.OpenAnswer
				if err != nil || status != http.StatusCreated || json.Unmarshal([]byte(body), &open) != nil {
					continue
				}
				if status, _ := report(c.t, url, open); status == http.StatusOK {
					mu.Lock()
					keys = append(keys, open.FlightID)
					mu.Unlock()
				}
			}
		})
	}
	return func() []string {
		over.Store(true)
		running.Wait()
		require.NotEmpty(c.t, keys)
		return keys
	}
}

// requireReceipts requires that a node's own ledger has a receipt of each flight.
func (c *testCluster) requireReceipts(i int, keys []string) {
	c.t.Helper()
	last := c.nodes[c.leader()].store.LastApplied().Index
	require.Eventually(c.t, func() bool { return c.nodes[i].store.LastApplied().Index >= last }, waitLimit, 10*time.Millisecond)
	for _, key := range keys {
		id, err := flight.ParseID(key)
		require.NoError(c.t, err)
		f, err := c.nodes[i].store.Flight(id)
		require.NoError(c.t, err)
		require.NotNil(c.t, f)
		require.Equal(c.t, flight.StateSucceeded, f.State)
	}
}

// A node that lost its disk is refused with its founding directory put back, is replaced under load, and counts: another node may
// die then. What it was before is refused.
func TestReplace_LostDisk(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t)
	c.pay(0, 0, 3)
	away := (c.leader() + 1) % 3
	c.stop(away)
	old := filepath.Join(c.dir, "old")
	copyTree(t, c.configs[away].Data, old)
	require.NoError(t, os.RemoveAll(c.configs[away].Data))
	c.start(away)
	var stranger *NotMemberError
	require.ErrorAs(t, c.endOf(away), &stranger)
	require.Contains(t, stranger.Reason, "flightd cluster replace "+c.names[away])
	require.NoError(t, os.RemoveAll(c.configs[away].Data))

	loaded := c.load((away+1)%3, (away+2)%3)
	dir, certificate := c.replacement(away, 1)
	c.replace((away+1)%3, away, certificate)
	c.replace((away+2)%3, away, certificate) // a repeat
	before := c.configs[away].Cluster
	c.configs[away].Cluster = dir
	c.start(away)
	c.ready(away)
	c.awaitReplaced(away)
	keys := loaded()
	c.requireReceipts(away, keys)
	c.stop(away)
	c.start(away) // a start like any other
	c.ready(away)

	other := (away + 1) % 3
	c.stop(other)
	c.pay(away, 10, 13)
	c.start(other)
	c.ready(other)

	// The directory and the certificate of the node before, together and each with what replaced the other.
	c.stop(away)
	replaced, data := c.configs[away].Cluster, c.configs[away].Data
	for _, with := range [][2]string{{before, old}, {before, data}, {replaced, old}, {replaced, filepath.Join(c.dir, "empty")}} {
		c.configs[away].Cluster, c.configs[away].Data = with[0], with[1]
		if with[1] == old {
			require.NoError(t, writePlace(old))
		}
		c.start(away)
		require.ErrorAs(t, c.endOf(away), &stranger, "%v", with)
	}
	c.configs[away].Cluster, c.configs[away].Data = replaced, data
	c.start(away)
	c.ready(away)
	c.pay(away, 13, 14)
}

// Etcd's members change at once, whatever etcd thinks of a peer that has just come back; and not while another node's etcd is away, because
// the old member would vote about that.
func TestReplace_EtcdMembers(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	away, other := (lead+1)%3, (lead+2)%3
	var members []uint64
	require.Eventually(t, func() bool {
		if a := c.nodes[lead].act.Load(); a != nil {
			if of, _ := a.etcdMembersOf(t.Context(), c.names[away]); len(of) == 1 {
				members = []uint64{of[0].ID}
			}
		}
		return len(members) == 1
	}, waitLimit, time.Millisecond)
	c.stop(away)
	body, err := json.Marshal(replacement{Certificate: "new", Instance: "new", OldEtcd: []uint64{1}}) // no member, in case that the poller is faster
	require.NoError(t, err)
	d := &flight.Document{ID: replacementID(c.names[away]), Body: body}
	require.Eventually(t, func() bool {
		at := c.nodes[lead]
		a := at.act.Load()
		if a == nil {
			return false
		}
		at.cluster.setView(c.names[other], &view{sent: time.Now(), status: status{Instance: c.nodes[other].cluster.instance}})
		_, err := a.replaceNode(t.Context(), d)
		return err != nil && strings.Contains(err.Error(), "only 1 of the 2 other nodes")
	}, waitLimit, time.Millisecond)
	c.stop(other)
	c.start(other)
	require.Eventually(t, func() bool {
		for i := range c.names {
			if a := c.nodes[i].act.Load(); i != away && a != nil {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, err := a.replaceEtcdMember(ctx, c.names[away], members)
				cancel()
				require.NotContains(t, fmt.Sprint(err), rpctypes.ErrUnhealthy.Error())
				return err == nil
			}
		}
		return false
	}, waitLimit, time.Millisecond)
}

// If two replacements of voters are asked for at once, the second one is refused until the successor of the first one votes.
func TestReplace_TwoAtOnce(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	c.pay(lead, 0, 1)
	require.Eventually(t, func() bool {
		a := c.nodes[lead].act.Load()
		if a == nil {
			return false
		}
		m, others, err := a.membersSeen()
		return err == nil && m.enoughWithout(c.names[(lead+1)%3], a.name(), others, time.Now()) == nil && m.enoughWithout(c.names[(lead+2)%3], a.name(), others, time.Now()) == nil
	}, waitLimit, time.Millisecond)
	first, second := (lead+1)%3, (lead+2)%3
	var dirs, certificates [3]string
	dirs[first], certificates[first] = c.replacement(first, 2)
	dirs[second], certificates[second] = c.replacement(second, 2)
	var statuses [3]int
	var bodies [3]string
	require.Eventually(t, func() bool { // under load a late answer of one node is enough that neither may be replaced
		var asked sync.WaitGroup
		for _, i := range []int{first, second} {
			asked.Go(func() {
				var err error
				statuses[i], bodies[i], err = post(c.nodes[lead].server.url()+"/v1/cluster/nodes/"+c.names[i]+"/replace",
					`{"certificate":"`+certificates[i]+`","reason":"a test","while_running":true}`)
				assert.NoError(t, err)
			})
		}
		asked.Wait()
		return statuses[first] == http.StatusOK || statuses[second] == http.StatusOK || !strings.Contains(bodies[first]+bodies[second], "only 1 of")
	}, waitLimit, time.Millisecond)
	if statuses[second] == http.StatusOK {
		first, second = second, first
	}
	require.Equal(t, http.StatusOK, statuses[first], bodies)
	require.Equal(t, http.StatusPreconditionFailed, statuses[second], bodies)
	require.Contains(t, bodies[second], "votes only later")
	c.stop(first)
	require.NoError(t, os.RemoveAll(c.configs[first].Data))
	c.configs[first].Cluster = dirs[first]
	c.start(first)
	c.ready(first)
	c.awaitReplaced(first)
	c.pay(first, 1, 2)
}

// The leader dies in the middle of a replacement, and so does the new node. The next leader goes on.
func TestReplace_DeathsInTheMiddle(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t)
	c.pay(0, 0, 3)
	lead := c.leader()
	away := (lead + 1) % 3
	c.stop(away)
	require.NoError(t, os.RemoveAll(c.configs[away].Data))
	dir, certificate := c.replacement(away, 1)
	c.replace(lead, away, certificate)
	_, other := c.replacement(away, 2)
	c.configs[away].Cluster = dir
	// A build that cannot read the ledger is not taken.
	require.Eventually(t, func() bool {
		at := c.nodes[c.leader()]
		at.cluster.setView(c.names[away], &view{sent: time.Now(), status: status{Instance: "old build", Joins: certificate, Reads: flight.LevelBase - 1}})
		a := at.act.Load()
		if a == nil {
			return false
		}
		_, err := a.replaceNode(t.Context(), at.store.Document(replacementID(c.names[away])))
		return err != nil && strings.Contains(err.Error(), "reads feature level 0")
	}, waitLimit, time.Millisecond)
	// After each state of the replacement that the ledger keeps, either the leader or the new node dies.
	state := func() (r replacement, voter bool) {
		for i, n := range c.nodes {
			if c.cancels[i] != nil && i != away {
				all, _, err := replacements(n.store.Documents(flight.KindReplacement))
				require.NoError(t, err)
				if r = all[c.names[away]]; r.Etcd != 0 {
					_, others, _, err := n.store.Servers()
					voter = err != nil || len(others) > 0
				}
				return r, voter
			}
		}
		return r, false
	}
	for _, reached := range []func() bool{
		func() bool { r, _ := state(); return r.Instance != "" },
		func() bool { r, _ := state(); return r.Etcd != 0 },
		func() bool { _, added := state(); return added },
	} {
		c.start(away)
		require.Eventually(t, reached, waitLimit, time.Millisecond)
		lead := c.leader()
		c.stop(away)
		c.stop(lead)
		c.start(lead)
		c.ready(lead)
	}
	c.start(away)
	c.ready(away)
	c.awaitReplaced(away)
	c.pay(away, 3, 5)

	// The new node loses its disk as well: its directory is good for one data directory. Another one replaces it.
	c.stop(away)
	require.NoError(t, os.RemoveAll(c.configs[away].Data))
	c.start(away)
	var stranger *NotMemberError
	require.ErrorAs(t, c.endOf(away), &stranger)
	require.Contains(t, stranger.Reason, "again")
	require.NoError(t, os.RemoveAll(c.configs[away].Data))
	c.replace((away+1)%3, away, other)
	c.configs[away].Cluster = filepath.Join(c.dir, c.names[away]+"-2")
	c.start(away)
	c.ready(away)
	c.awaitReplaced(away)
	c.pay(away, 5, 6)
}

// A node is not replaced while that would cost the majority, while it leads, or while it runs, unless an operator says so.
func TestMayReplace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fine := func() *view { return &view{sent: now, status: status{EtcdOK: true, Instance: "2"}} }
	silent := &view{sent: now.Add(-time.Minute), err: errors.New("no answer"), status: status{EtcdOK: true}}
	all := map[string]string{"a": "1", "b": "2", "c": "3"}
	noEtcd := fine()
	noEtcd.status.EtcdOK = false
	joins := fine()
	joins.status.Joins = "x"
	for name, test := range map[string]struct {
		node    string
		others  map[string]*view
		running bool
		noVote  bool
		members members
		want    string // "": allowed
	}{
		"away":                   {node: "c", others: map[string]*view{"b": fine(), "c": silent}},
		"never seen":             {node: "c", others: map[string]*view{"b": fine(), "c": nil}},
		"runs":                   {node: "c", others: map[string]*view{"b": fine(), "c": fine()}, want: "node c runs"},
		"runs, and shall go":     {node: "c", others: map[string]*view{"b": fine(), "c": fine()}, running: true},
		"waits to join":          {node: "c", others: map[string]*view{"b": fine(), "c": joins}},
		"leads":                  {node: "a", others: map[string]*view{"b": fine(), "c": fine()}, running: true, want: "leads"},
		"no majority":            {node: "c", others: map[string]*view{"b": silent, "c": silent}, running: true, want: "only 1 of the 2"},
		"no etcd":                {node: "c", others: map[string]*view{"b": noEtcd, "c": silent}, running: true, want: "only 1 of the 2"},
		"another data directory": {node: "c", others: map[string]*view{"b": {sent: now, status: status{EtcdOK: true, Instance: "4"}}, "c": silent}, want: "only 1 of the 2"},
		"another is replaced": {node: "c", others: map[string]*view{"b": fine(), "c": silent}, running: true, want: "node b votes only later: it joins the cluster",
			members: members{Instances: map[string]string{"a": "1", "c": "3"}, Replaced: map[string]replacement{"b": {Instance: "2"}}}},
		"it only joins, as another one does": {node: "c", noVote: true, others: map[string]*view{"b": silent, "c": silent},
			members: members{Instances: map[string]string{"a": "1"}, Replaced: map[string]replacement{"b": {}, "c": {Instance: "3", Etcd: 7}}}},
		"again": {node: "b", others: map[string]*view{"b": silent, "c": {sent: now, status: status{EtcdOK: true, Instance: "3"}}},
			members: members{Instances: map[string]string{"a": "1", "c": "3"}, Replaced: map[string]replacement{"b": {Instance: "2"}}}},
	} {
		m := test.members
		if m.Instances == nil {
			m = members{Instances: all}
		}
		bad := m.mayReplace(test.node, "a", !test.noVote, test.others, test.running, now)
		if test.want == "" {
			require.Nil(t, bad, name)
			continue
		}
		require.NotNil(t, bad, name)
		require.Contains(t, bad.Detail, test.want, name)
		require.NotEmpty(t, bad.Hint, name)
	}
}

// Members are stored when they are newer, whichever half of them is.
func TestMembers_NewerOnesCount(t *testing.T) {
	t.Parallel()
	have := members{Index: 7, Instances: map[string]string{"a": "new"}}
	of := &cluster{path: filepath.Join(t.TempDir(), membersName), members: have}
	changed, err := of.mergeMembers(members{Index: 0, Instances: map[string]string{"a": "old"}})
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, have, of.foundingAnswer().Members)
	changed, err = of.mergeMembers(members{Changed: 1, Replaced: map[string]replacement{"x": {Certificate: "y"}}})
	require.NoError(t, err)
	require.True(t, changed)
	again := &cluster{path: of.path}
	require.NoError(t, again.readMembers())
	require.Equal(t, have.Instances, again.members.Instances)
	require.Error(t, of.admit(peer.Identity{Node: "x", Certificate: "z"}))
	require.NoError(t, of.admit(peer.Identity{Node: "x", Certificate: "y"}))
}

// An operator's word about a restored directory counts for a lone ledger. A node of a cluster may have forgotten votes: it is
// replaced. Its directory may be moved, and the word about that counts once.
func TestCluster_RestoredDirectoryIsNoMember(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	c.pay(0, 0, 2)
	victim := (c.leader() + 1) % 3
	c.stop(victim)
	data := c.configs[victim].Data
	var invalid *flight.InvalidError
	require.ErrorAs(t, AcceptRestore(data, Acceptance{Reason: "a test", Actor: "ann"}), &invalid)
	require.ErrorContains(t, invalid, "flightd cluster replace")

	accepted := filepath.Join(data, acceptanceName)
	require.NoError(t, os.WriteFile(accepted, []byte(`{"reason":"a test","actor":"ann"}`), 0o600))
	c.start(victim)
	var stranger *NotMemberError
	require.ErrorAs(t, c.endOf(victim), &stranger)
	require.ErrorContains(t, stranger, "flightd cluster replace")
	require.DirExists(t, filepath.Join(data, "etcd", "member", "wal"), "nothing was set aside")

	require.NoError(t, os.Remove(accepted))
	require.NoError(t, AcceptRestore(data, Acceptance{Reason: "a new disk", Actor: "ann", Moved: true}))
	c.start(victim)
	c.ready(victim)
	require.NoFileExists(t, accepted)
	c.pay(victim, 2, 4)
}

// A leader that finds a damaged table on its disk hands over, and all nodes name it until it is replaced.
func TestReplace_DamagedDisk(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t, func(cfg *Config) { cfg.tuning.verifyEvery = 100 * time.Millisecond })
	c.pay(0, 0, 3)
	for i := range c.nodes { // a node that stops writes its state to a table
		c.stop(i)
		c.start(i)
		c.ready(i)
	}
	damaged := func() (names []string) {
		for _, n := range (monitor{c.nodes[0].node}).clusterState().Nodes {
			if n.DiskDamaged {
				require.Equal(t, damagedDisk, n.Problem)
				names = append(names, n.Name)
			}
		}
		return names
	}
	require.Empty(t, damaged())

	lead := c.leader()
	tables, err := filepath.Glob(filepath.Join(c.configs[lead].Data, "ledger", "state-*", "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	content, err := os.ReadFile(tables[0])
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(tables[0], content, 0o600))
	require.Eventually(t, func() bool { return slices.Equal(damaged(), c.names[lead:lead+1]) && c.leader() != lead }, waitLimit, 20*time.Millisecond)
	require.Contains(t, body(t, c.nodes[lead].server.url()+"/metrics"), "\nflightd_disk_damaged 1\n")

	c.stop(lead)
	dir, certificate := c.replacement(lead, 1)
	c.replace((lead+1)%3, lead, certificate)
	c.configs[lead].Cluster, c.configs[lead].Data = dir, c.configs[lead].Data+"-2"
	c.start(lead)
	c.ready(lead)
	c.awaitReplaced(lead)
	require.Empty(t, damaged())
}
