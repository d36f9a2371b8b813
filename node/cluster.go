package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/lease/etcdlease"
)

// cluster is what a node of a cluster knows of the other nodes. Its methods are safe for concurrent use.
type cluster struct {
	founding *peer.Founding
	instance string // of this node: drawn when its data directory was new
	hadEntry bool   // the ledger of this node had an entry when the process started
	port     *peer.Port
	path     string // of the file of members
	log      *slog.Logger
	changed  gate.Signal // broadcast when a leader may have changed
	fresh    atomic.Pointer[freshness]

	mu      sync.Mutex // guards the fields below
	members members
	started bool             // this node has seen that all have stored the same instances, or has a ledger
	joining bool             // this node waits until the leader takes it in place of the one before
	views   map[string]*view // of the other nodes, by name
}

// members are the nodes that may take part, by the instance of each. A node whose data directory was lost draws another
// instance, so it is not taken for the one that has voted.
type members struct {
	Index     uint64            `json:"index"` // of raft's configuration; 0: as agreed at the founding
	Instances map[string]string `json:"instances"`
	// Replaced are the nodes that were replaced, as of the newest change, the entry Changed.
	Replaced map[string]replacement `json:"replaced,omitempty"`
	Changed  uint64                 `json:"changed,omitempty"`
}

// membersName is the file of the members, in the directory of the ledger.
const membersName = "MEMBERS"

// NotMemberError is returned when the other nodes know this node by another data directory, or it has none of its own.
type NotMemberError struct {
	Node   string
	Reason string
}

func (e *NotMemberError) Error() string {
	return fmt.Sprintf("node %s is not a member of its cluster: %s", e.Node, e.Reason)
}

// openCluster reads the founding directory, draws or reads this node's instance and opens the port between nodes.
func (n *node) openCluster() error {
	founding, err := peer.Load(n.cfg.Cluster)
	if errors.Is(err, fs.ErrNotExist) {
		return &flight.InvalidError{Field: "cluster", Detail: err.Error()}
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(n.cfg.Data, "ledger")
	instance, started, err := clusterstore.Identify(dir, founding.ClusterID)
	if err != nil {
		return err
	}
	c := &cluster{
		founding: founding, instance: instance, hadEntry: started, started: started, path: filepath.Join(dir, membersName), log: n.cfg.Logger,
		joining: !started && founding.Replacement, views: make(map[string]*view),
	}
	if err := c.readMembers(); err != nil {
		return err
	}
	if started && len(c.members.Instances) == 0 {
		return &NotMemberError{Node: c.name(), Reason: fmt.Sprintf("%s is missing, which names the nodes: flightd cluster found --from %s makes a new cluster of a restored or a lone ledger", c.path, n.cfg.Data)}
	}
	c.port, err = peer.Open(peer.Config{Founding: founding, Instance: instance, Admit: c.admit, Logger: n.cfg.Logger})
	if err != nil {
		return err
	}
	n.cluster = c
	c.port.SetHandler(peerAPI{n}.handler())
	n.parts.start("port between nodes", func(ctx context.Context) error {
		<-ctx.Done()
		return c.port.Close()
	})
	return nil
}

func (c *cluster) name() string { return c.founding.Self.Name }

// others returns the names of the other nodes.
func (c *cluster) others() (names []string) {
	for _, node := range c.founding.Nodes {
		if node.Name != c.name() {
			names = append(names, node.Name)
		}
	}
	return names
}

// readMembers reads the file of the members, if there is one.
func (c *cluster) readMembers() error {
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c.members)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", c.path, err)
	}
	return nil
}

// storeMembers replaces the members by newer ones, durably, and closes the connections of those that are none any more.
func (c *cluster) storeMembers(m members) error {
	changed, err := c.mergeMembers(m)
	if changed {
		c.port.SetAdmit(c.admit)
		c.changed.Broadcast()
	}
	return err
}

func (c *cluster) mergeMembers(newer members) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members
	if len(m.Instances) == 0 || newer.Index > m.Index && !maps.Equal(newer.Instances, m.Instances) {
		m.Index, m.Instances, changed = newer.Index, newer.Instances, len(newer.Instances) > 0
	}
	if newer.Changed > m.Changed {
		m.Changed, m.Replaced, changed = newer.Changed, newer.Replaced, true
	}
	if !changed {
		return false, nil
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = durable.Replace(c.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return false, err
	}
	c.members = m
	return true, nil
}

// admit decides about the other end of a connection between nodes. Before the founding has ended, every instance of a node
// is accepted.
func (c *cluster) admit(id peer.Identity) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, replaced := c.members.Replaced[id.Node]; replaced {
		return r.admit(id)
	}
	known := c.members.Instances[id.Node]
	if known == id.Instance || len(c.members.Instances) == 0 {
		return nil
	}
	return fmt.Errorf("node %s was a member with another data directory, which it has lost: give it that directory back, or run flightd cluster replace %s; the others go on without it", id.Node, id.Node)
}

// found agrees with all other nodes on the instances of the cluster, once. It returns when this node may create its ledger:
// all nodes have stored the same instances, or one of them has a ledger already. It waits for nodes that do not answer.
//
// If the process dies before the instances are stored, the founding begins again. After that, they never change: a node that
// loses its directory now is not a member, and the ledger does not come into being without it.
func (c *cluster) found(ctx context.Context) error {
	if c.started || c.founding.Replacement {
		return c.join(ctx)
	}
	waiting, tick := time.NewTicker(5*time.Second), time.NewTicker(200*time.Millisecond)
	defer waiting.Stop()
	defer tick.Stop()
	for {
		silent, err := c.foundOnce(ctx)
		if err != nil {
			return err
		}
		if len(silent) == 0 {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.started = true // a node that still waits need not wait for the others any more
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("found the cluster: %s did not answer: %w", strings.Join(silent, ", "), context.Cause(ctx))
		case <-waiting.C:
			c.log.Info("the cluster is founded when all nodes run; waiting for the others", "waiting_for", strings.Join(silent, ", "))
		case <-tick.C:
		}
	}
}

// foundingAnswer is what a node says of the founding.
type foundingAnswer struct {
	Instance string  `json:"instance"`
	Members  members `json:"members"`
	Started  bool    `json:"started"`
}

// foundOnce asks every other node once. It returns the nodes that are not as far as they must be.
func (c *cluster) foundOnce(ctx context.Context) (silent []string, err error) {
	instances, agreed, began := map[string]string{c.name(): c.instance}, 0, false
	own := c.foundingAnswer().Members.Instances
	for _, name := range c.others() {
		var answer foundingAnswer
		if err := c.ask(ctx, name, foundingPath, &answer); err != nil {
			if refused, ok := errors.AsType[*peer.RefusedError](err); ok && refused.By != c.name() { // else this node refuses the other one, and waits for the right one
				return nil, &NotMemberError{Node: c.name(), Reason: refused.Error()}
			}
			silent = append(silent, name)
			continue
		}
		theirs := answer.Members.Instances
		instances[name] = answer.Instance
		switch {
		case len(theirs) == 0:
			silent = append(silent, name)
		case answer.Started && len(own) > 0 && theirs[c.name()] == c.instance && !maps.Equal(own, theirs):
			return nil, &NotMemberError{Node: c.name(), Reason: fmt.Sprintf("the other nodes have replaced one of them before this one had started: run flightd cluster replace %s", c.name())}
		case theirs[c.name()] != c.instance, len(own) > 0 && !maps.Equal(own, theirs):
			return nil, &NotMemberError{Node: c.name(), Reason: fmt.Sprintf("node %s has stored other data directories for this cluster. If no node has served a request yet, empty all data directories and start again; else give this node back the directory with which it was founded", name)}
		default:
			agreed++
			began = began || answer.Started
		}
	}
	if len(instances) == len(c.founding.Nodes) && len(own) == 0 {
		return c.others(), c.storeMembers(members{Instances: instances}) // the next round compares
	}
	if len(own) > 0 && (began || agreed == len(c.others())) {
		return nil, nil
	}
	if len(silent) == 0 {
		silent = c.others()
	}
	return silent, nil
}

func (c *cluster) foundingAnswer() foundingAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return foundingAnswer{Instance: c.instance, Members: c.members, Started: c.started}
}

// checkMember returns *NotMemberError if this node's etcd member has lost its directory. The ledger starts after etcd has
// answered, so a ledger with an entry proves that there was a member: it has voted, and knew sessions that live. Etcd itself
// would take an empty directory for a new member.
func (n *node) checkMember() error {
	if n.cfg.Etcd.enabled() {
		return nil
	}
	if !n.cluster.hadEntry {
		return n.setStaleMemberAside()
	}
	if _, err := os.Stat(filepath.Join(n.cfg.etcdDir(), startingName)); err == nil {
		return nil // MoveIntoCluster has made it, and etcd has not answered yet
	}
	dir := filepath.Join(n.cfg.etcdDir(), "member", "wal")
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &NotMemberError{Node: n.cluster.name(), Reason: fmt.Sprintf("%s is missing, with etcd's votes and sessions: give the directory back, or run flightd cluster replace %s; the others go on without it", dir, n.cluster.name())}
}

// setStaleMemberAside moves the data of a new node's etcd away if its member is not the one that the leader has added: etcd asks any of the
// others for its id, and one that lags names the removed member of the same address, which has no vote any more.
func (n *node) setStaleMemberAside() error {
	n.cluster.mu.Lock()
	added := n.cluster.members.Replaced[n.cluster.name()]
	n.cluster.mu.Unlock()
	wal := filepath.Join(n.cfg.etcdDir(), "member", "wal")
	if _, err := os.Stat(wal); errors.Is(err, fs.ErrNotExist) || added.Instance != n.cluster.instance {
		return nil
	}
	_, member, err := scanWAL(wal)
	if err != nil || member == 0 || member == added.Etcd {
		return nil // checkEtcd says what is wrong with a log
	}
	n.cfg.Logger.Warn("etcd has started with the id of the removed member; it starts anew", "id", member, "added", added.Etcd)
	return n.moveEtcdAside()
}

// voters returns the founding members as voters of the ledger.
func (c *cluster) voters() (voters []clusterstore.Voter) {
	known := c.foundingAnswer().Members.Instances
	for _, name := range slices.Sorted(maps.Keys(known)) {
		voters = append(voters, clusterstore.Voter{ID: known[name], Address: name})
	}
	return voters
}

// startInCluster starts a node of a cluster. It returns when the ledger has a deployment, which needs a majority of the nodes.
func (n *node) startInCluster(ctx context.Context) error {
	if err := n.openCluster(); err != nil {
		return err
	}
	if n.restored() {
		return &NotMemberError{Node: n.cluster.name(), Reason: fmt.Sprintf("its data directory was restored or copied, so it may have forgotten votes and entries; %s says that somebody accepts that, and the other nodes cannot: give it its newest directory back, or run flightd cluster replace %s", acceptanceName, n.cluster.name())}
	}
	if err := n.cluster.found(ctx); err != nil {
		return err
	}
	if err := n.checkMember(); err != nil {
		return err
	}
	if err := n.openStores(ctx); err != nil {
		return err
	}
	n.parts.start("status of the nodes", func(ctx context.Context) error {
		(&poller{node: n}).run(ctx)
		return nil
	})
	if err := n.store.AwaitDeployment(ctx); err != nil {
		return err
	}
	if err := n.checkDeployment(); err != nil {
		return err
	}
	if err := watchDirectory(n.parts, &n.cfg); err != nil {
		return err
	}
	if err := n.finishAcceptance(); err != nil {
		return err
	}
	if err := n.openAsked(); err != nil {
		return err
	}
	monitor{n}.register()
	n.record = n.newRecord()
	n.startRecord()
	if err := n.openProlonging(); err != nil {
		return err
	}
	n.startBackground()
	n.parts.start("terms", n.runTerms)
	forwarder := newForwarder(n)
	if err := n.program.open(ctx, n, forwarder); err != nil {
		return err
	}
	n.serveRequests(forwarder.forCallers())
	n.awaitReady(ctx)
	n.parts.start("leadership", func(ctx context.Context) error { // stops first
		<-ctx.Done()
		handOver(ctx, n.store, n.cfg.Logger)
		return nil
	})
	return nil
}

// awaitReady waits until callers can be served, at most leaderWait: the others may be away.
func (n *node) awaitReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	for m := (monitor{n}); ctx.Err() == nil && !m.readiness(ctx).Ready; {
		n.cluster.waitChange(ctx, pollEvery)
	}
}

// openProlonging opens the leases with which a node of a cluster renews sessions while no node leads. They create no session.
func (n *node) openProlonging() (err error) {
	n.prolonging, err = etcdlease.New(etcdlease.Config{
		Client: n.etcd.client, Server: n.etcd.server(), Prefix: n.etcd.root.Prefix(n.store.Header().Deployment), Deployment: n.store.Header().Deployment,
		Ledger: n.store,
		Tuning: etcdlease.Tuning{Pool: -1},
	})
	if err != nil {
		return err
	}
	n.parts.start("renewals without a leader", func(ctx context.Context) error {
		<-ctx.Done()
		return n.withStopTimeout(ctx, n.prolonging.Close)
	})
	return nil
}
