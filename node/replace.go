package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// replacement says which node has taken the place of one that lost its disk. It is the body of a document, so every leader has
// it; with raft's configuration and etcd's members it says what is to be done next.
//
// If a process dies after a change of the document, this is true:
//
//	Certificate   the old certificate is refused for ever. The old voter and the old etcd member still count, as ones that are away
//	Instance      another data directory behind the same certificate is refused for ever
//	Etcd          the old etcd member is removed, and this one was added. The new node may start it, and not before
//
// Then the leader removes the old voter, adds the new node without a vote, and gives it votes when it has the ledger: in etcd
// first, and in raft last. Until then a majority of the others decides; if one of them dies, nothing is acknowledged until it is back.
type replacement struct {
	Certificate string   `json:"certificate"`        // of the new node
	Instance    string   `json:"instance,omitempty"` // of the new node; "": it has not answered yet
	OldEtcd     []uint64 `json:"old_etcd,omitempty"` // ids of the etcd members to remove; a deposed leader removes no others
	Etcd        uint64   `json:"etcd,omitempty"`     // id of the new node's etcd member; 0: none yet
}

// replacements reads the documents of all replacements. changed is the entry of the newest one.
func replacements(documents []*flight.Document) (all map[string]replacement, changed uint64, err error) {
	for _, d := range documents {
		var r replacement
		if err := json.Unmarshal(d.Body, &r); err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", d.ID, err)
		}
		if all == nil {
			all = make(map[string]replacement)
		}
		all[d.ID.Name], changed = r, max(changed, d.Version.Index)
	}
	return all, changed, nil
}

// admit decides about a node that was replaced.
func (r replacement) admit(id peer.Identity) error {
	if id.Certificate != r.Certificate {
		return fmt.Errorf("node %s was replaced, and this is the certificate of the one before: start it with the directory that flightd cluster replace has made, and an empty data directory", id.Node)
	}
	if r.Instance != "" && r.Instance != id.Instance {
		return fmt.Errorf("node %s has lost the data directory with which it took its place: give it that directory back, or run flightd cluster replace %s again", id.Node, id.Node)
	}
	return nil
}

// pending says what a node waits for that replaces another one, or joins a ledger that was moved into a cluster; "": nothing.
func (m *members) pending(name string) string {
	r, replaced := m.Replaced[name]
	switch {
	case !replaced, r.Instance != "" && m.Instances[name] == r.Instance:
		return ""
	case r.Instance == "":
		return "it joins the cluster: it has not started yet"
	}
	return "it joins the cluster: it is not a voter yet"
}

// joins returns the certificate of this node while it waits until it replaces the one before; else "".
func (c *cluster) joins() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joining {
		return c.founding.Certificate()
	}
	return ""
}

// join returns when this node may start: it has a ledger, or the leader has taken it in place of the node before and has added its
// etcd member. It returns *NotMemberError if no other node takes this one, and one refuses it.
//
// If the process dies in join, the next start waits again, with the same instance.
func (c *cluster) join(ctx context.Context) error {
	const learnTime = 5 * time.Second // the others learn of a replacement one after the other
	for said := time.Now(); ; {
		reason := c.refused(ctx)
		c.mu.Lock()
		r := c.members.Replaced[c.name()]
		if c.joining = c.joining && (r.Instance != c.instance || r.Etcd == 0); !c.joining && reason == "" {
			c.started = true
		}
		joining := c.joining
		c.mu.Unlock()
		switch late := time.Since(said) > learnTime; {
		case reason != "" && (late || !joining):
			return &NotMemberError{Node: c.name(), Reason: reason}
		case !joining:
			return nil
		case late:
			c.log.Info("this node waits until the leader takes it into the cluster")
			said = time.Now()
		}
		c.waitChange(ctx, pollEvery/2)
		if ctx.Err() != nil {
			return fmt.Errorf("join the cluster as node %s: the leader has not taken this one: %w", c.name(), context.Cause(ctx))
		}
	}
}

// refused asks all other nodes and stores the members that they know. It returns why this node is refused; "" if one of them
// takes it, or none answers.
func (c *cluster) refused(ctx context.Context) (reason string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex // guards reason and taken
	var taken bool
	var asked sync.WaitGroup
	for _, name := range c.others() {
		asked.Go(func() {
			var answer foundingAnswer
			err := c.ask(ctx, name, foundingPath, &answer)
			if err == nil {
				err = c.storeMembers(answer.Members)
			}
			mu.Lock()
			defer mu.Unlock()
			var refused *peer.RefusedError
			if taken = taken || err == nil; errors.As(err, &refused) && refused.By != c.name() && refused.Code == peer.CodeNotAdmitted {
				reason = refused.Error()
			}
		})
	}
	if asked.Wait(); taken {
		return ""
	}
	return reason
}

// runs reports whether a node has answered just now, and takes part.
func (v *view) runs(now time.Time) bool {
	return v != nil && v.err == nil && now.Sub(v.sent) < 4*pollEvery && v.status.Joins == ""
}

// enoughWithout returns why the other nodes must not go on without a node: those that answer with their etcd, the leader among them, are
// no majority of all, the node counted in. nil: they may.
func (m *members) enoughWithout(name, leader string, others map[string]*view, now time.Time) error {
	remain, fit := 0, 0
	for other, instance := range m.Instances {
		if other == name {
			continue
		}
		if remain++; other == leader || others[other].runs(now) && others[other].status.EtcdOK && others[other].status.Instance == instance {
			fit++
		}
	}
	if fit < (remain+1)/2+1 {
		return fmt.Errorf("only %d of the %d other nodes answer with their etcd: without node %s they would be no majority", fit, remain, name)
	}
	return nil
}

// mayReplace returns why a node must not be replaced now; nil: it may be. votes says that it has a vote; others are the newest statuses of
// the other nodes.
func (m *members) mayReplace(name, leader string, votes bool, others map[string]*view, whileRunning bool, now time.Time) *wire.Invalid {
	refuse := func(hint, format string, args ...any) *wire.Invalid {
		return &wire.Invalid{Code: wire.PreconditionFailed, Hint: hint, FieldError: wire.FieldError{Detail: fmt.Sprintf(format, args...)}}
	}
	for other := range m.Replaced {
		if why := m.pending(other); votes && why != "" && other != name {
			return refuse("wait until it votes, which flightd cluster status shows, or replace it again", "node %s votes only later: %s", other, why)
		}
	}
	few := m.enoughWithout(name, leader, others, now)
	switch {
	case name == leader:
		return refuse("stop it: another node leads then; repeat the command", "node %s leads the ledger", name)
	case votes && few != nil:
		return refuse("start the other nodes first", "%v", few)
	case others[name].runs(now) && !whileRunning:
		return refuse("if it shall not come back, stop it, or pass --while-running", "node %s runs", name)
	}
	return nil
}

// beginReplacement proposes the document that makes the bearer of a certificate the successor of a node, unless the ledger has it. Its
// caller's propose adds who asked.
//
// Two voters that are replaced at once would leave no majority, so one call waits for the other, and a proposal ends with its decision
// or with the term, not with its caller.
func (a *actor) beginReplacement(name, certificate string, whileRunning bool, propose func(context.Context, *flight.PutDocument) error) error {
	a.replacing.Lock()
	defer a.replacing.Unlock()
	put, bad := a.replacementOf(name, certificate, whileRunning)
	if bad != nil {
		return bad
	}
	if put == nil {
		return nil
	}
	return propose(a.lifetime, put)
}

// replacementOf returns the document for beginReplacement, or nil if the ledger has it.
func (a *actor) replacementOf(name, certificate string, whileRunning bool) (*flight.PutDocument, *wire.Invalid) {
	if _, found := a.cluster.founding.Node(name); !found {
		return nil, &wire.Invalid{Code: wire.NotFound, Hint: "flightd cluster status lists the nodes", FieldError: wire.FieldError{Parameter: "name", Detail: "the cluster has no node of this name"}}
	}
	put := &flight.PutDocument{ID: replacementID(name)}
	if d := a.store.Document(put.ID); d != nil {
		var r replacement
		if json.Unmarshal(d.Body, &r) == nil && r.Certificate == certificate {
			return nil, nil
		}
		put.Expect = d.Version
	}
	ctx, cancel := context.WithTimeout(a.lifetime, 2*time.Second)
	defer cancel()
	votes, err := a.votes(ctx, name)
	m, others, membersErr := a.membersSeen()
	if membersErr != nil {
		return nil, &wire.Invalid{Code: wire.PreconditionFailed, Hint: "repeat the command", FieldError: wire.FieldError{Detail: membersErr.Error()}}
	}
	if bad := m.mayReplace(name, a.name(), votes || err != nil, others, whileRunning, time.Now()); bad != nil {
		return nil, bad
	}
	put.Body, _ = json.Marshal(replacement{Certificate: certificate}) // it has no value that cannot be encoded
	return put, nil
}

// membersSeen returns the members as the ledger has them now, and what the other nodes have last said. The poller's members may be
// older.
func (a *actor) membersSeen() (m members, others map[string]*view, err error) {
	voters, index, err := a.store.Voters()
	if err == nil && index == 0 {
		err = errors.New("the members of the ledger are changing")
	}
	if err != nil {
		return m, nil, err
	}
	m.Instances, others = make(map[string]string), make(map[string]*view)
	for _, v := range voters {
		m.Instances[v.Address] = v.ID
	}
	for _, other := range a.cluster.others() {
		others[other] = a.cluster.viewOf(other)
	}
	m.Replaced, m.Changed, err = replacements(a.store.Documents(flight.KindReplacement))
	return m, others, err
}

// votes reports whether a node has a vote in the ledger or in etcd: one that was just added has none.
func (a *actor) votes(ctx context.Context, name string) (bool, error) {
	voters, _, err := a.store.Voters()
	if err != nil || slices.ContainsFunc(voters, func(v clusterstore.Voter) bool { return v.Address == name }) {
		return true, err
	}
	members, err := a.etcdMembersOf(ctx, name)
	return slices.ContainsFunc(members, func(m *etcdserverpb.Member) bool { return !m.IsLearner }), err
}

func replacementID(name string) flight.DocumentID {
	return flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindReplacement, Name: name}
}

// errNotStarted: a new node has not started yet.
var errNotStarted = errors.New("the new node has not started")

// replaceNodes goes on with all replacements until ctx ends, one node after the other.
func (a *actor) replaceNodes(ctx context.Context) {
	over := make(map[flight.DocumentID]flight.Version)
	for said := time.Now(); ctx.Err() == nil; a.cluster.waitChange(ctx, pollEvery) {
		err := a.takeIn(ctx)
		documents := a.store.Documents(flight.KindReplacement)
		all, _, _ := replacements(documents)                               // replaceNode names the error
		slices.SortStableFunc(documents, func(x, y *flight.Document) int { // etcd takes one learner: who is one, or was, goes on first
			return cmp.Compare(min(all[y.ID.Name].Etcd, 1), min(all[x.ID.Name].Etcd, 1))
		})
		for _, d := range documents {
			if err != nil || over[d.ID] == d.Version {
				continue
			}
			done, stepErr := a.replaceNode(ctx, d)
			switch {
			case done:
				over[d.ID] = d.Version
			case !errors.Is(stepErr, errNotStarted):
				err = cmp.Or(stepErr, errUnfinished)
			}
		}
		if err != nil && !errors.Is(err, errUnfinished) && ctx.Err() == nil && time.Since(said) > sayAfter {
			a.cfg.Logger.Warn("a node joins the cluster, and the next step fails; it is retried", "error", err)
			said = time.Now()
		}
	}
}

// errUnfinished: a replacement goes on, and the next one waits for it.
var errUnfinished = errors.New("a replacement is not over yet")

// takeIn makes a lone node's ledger that of the cluster of its founding directory: the voter gets the name of its node, and each
// other node becomes one that replaces a node of which nothing is left.
func (a *actor) takeIn(ctx context.Context) error {
	if len(a.cluster.founding.Takes) == 0 {
		return nil
	}
	voters, _, _, err := a.store.Servers()
	if self := (clusterstore.Voter{ID: a.cluster.instance, Address: a.name()}); err != nil || len(voters) != 1 {
		return err
	} else if voters[0] != self {
		return a.store.AddVoter(ctx, self)
	}
	for name, certificate := range a.cluster.founding.Takes {
		if d := (&flight.Document{ID: replacementID(name)}); a.store.Document(d.ID) == nil {
			err = errors.Join(err, a.putReplacement(ctx, d, &replacement{Certificate: certificate}, "founded with this ledger"))
		}
	}
	return err
}

// replaceNode does the next step of a replacement, if there is one to be done now.
func (a *actor) replaceNode(ctx context.Context, d *flight.Document) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var r replacement
	if err := json.Unmarshal(d.Body, &r); err != nil {
		return false, err
	}
	name := d.ID.Name
	v := a.cluster.viewOf(name)
	if v == nil {
		v = &view{err: errors.New("it has not answered")}
	}
	header := a.store.Header()
	reads, level := v.status.Reads, header.FeatureLevel()
	switch {
	case r.Instance == "":
		if v.err != nil || v.status.Joins != r.Certificate {
			return false, errNotStarted
		}
		if reads < level {
			return false, fmt.Errorf("node %s reads feature level %d, and the ledger has %d: install the version of the other nodes there", name, reads, level)
		}
		old, err := a.etcdMembersOf(ctx, name)
		if err != nil {
			return false, err
		}
		r.OldEtcd = nil
		for _, m := range old {
			r.OldEtcd = append(r.OldEtcd, m.ID)
		}
		r.Instance = v.status.Instance
		return false, a.putReplacement(ctx, d, &r, "the new node has started")
	case r.Etcd == 0:
		m, others, err := a.membersSeen()
		if err != nil {
			return false, err
		}
		if votes, err := a.votes(ctx, name); err != nil {
			return false, err
		} else if few := m.enoughWithout(name, a.name(), others, time.Now()); votes && few != nil {
			return false, few // the old member may still vote, if its node runs: it must not decide about its own removal
		}
		if r.Etcd, err = a.replaceEtcdMember(ctx, name, r.OldEtcd); err != nil {
			return false, err
		}
		return false, a.putReplacement(ctx, d, &r, "the new node has a member of etcd")
	}
	voters, nonvoters, _, err := a.store.Servers()
	if err != nil {
		return false, err
	}
	successor := clusterstore.Voter{ID: r.Instance, Address: name}
	if slices.Contains(voters, successor) {
		return true, nil
	}
	for _, old := range slices.Concat(voters, nonvoters) {
		if old.Address == name && old != successor {
			return false, a.store.RemoveServer(ctx, old.ID)
		}
	}
	if !slices.Contains(nonvoters, successor) {
		return false, a.store.AddNonvoter(ctx, successor)
	}
	s := &v.status
	if v.err != nil || s.Instance != r.Instance || reads < level || s.Applied == 0 || s.Applied+maxBehind < v.own {
		return false, nil
	}
	a.replacing.Lock() // a replacement of this node, which has no vote, may be under way
	defer a.replacing.Unlock()
	if now := a.store.Document(d.ID); now == nil || now.Version != d.Version {
		return false, nil
	}
	if err := a.promoteEtcdMember(ctx, r.Etcd); err != nil {
		return false, err
	}
	return false, a.store.AddVoter(ctx, successor)
}

// putReplacement stores the next state of a replacement. If the document has changed, it stores nothing.
func (a *actor) putReplacement(ctx context.Context, d *flight.Document, r *replacement, reason string) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = a.store.Propose(ctx, &flight.PutDocument{ID: d.ID, Expect: d.Version, Body: body, Actor: "node " + a.name(), Reason: reason})
	return err
}

// noMember is the id of the etcd member of a node that has none: leases are in an etcd of the operator's own.
const noMember = 1

// etcdMembersOf returns the members with the address of a node.
func (a *actor) etcdMembersOf(ctx context.Context, name string) (of []*etcdserverpb.Member, err error) {
	if a.etcd.member == nil {
		return nil, nil
	}
	list, err := a.etcd.client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range list.Members {
		if slices.Contains(m.PeerURLs, a.cluster.etcdURL(name)) {
			of = append(of, m)
		}
	}
	return of, nil
}

// replaceEtcdMember removes members of a node, and returns the id of the one that it has then, a learner. Nobody starts that one
// before its id is stored, so a member that an earlier call has added is as good as a new one.
func (a *actor) replaceEtcdMember(ctx context.Context, name string, old []uint64) (id uint64, err error) {
	if a.etcd.member == nil {
		return noMember, nil
	}
	present, err := a.etcdMembersOf(ctx, name)
	if err != nil {
		return 0, err
	}
	for _, one := range present {
		if !slices.Contains(old, one.ID) {
			id = one.ID
			continue
		}
		if _, err := a.etcd.client.MemberRemove(ctx, one.ID); err != nil {
			return 0, err
		}
	}
	if id != 0 {
		return id, nil
	}
	added, err := a.etcd.client.MemberAddAsLearner(ctx, []string{a.cluster.etcdURL(name)})
	if err != nil {
		return 0, err
	}
	return added.Member.ID, nil
}

// promoteEtcdMember makes a learner a voter of etcd. Etcd refuses it until the learner has its data.
func (a *actor) promoteEtcdMember(ctx context.Context, id uint64) error {
	if a.etcd.member == nil {
		return nil
	}
	_, err := a.etcd.client.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil // done before
	}
	return err
}

// etcdURL returns the URL of a node's etcd member.
func (c *cluster) etcdURL(name string) string {
	n, _ := c.founding.Node(name)
	return "https://" + n.Etcd
}
