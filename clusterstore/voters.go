package clusterstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/internal/gate"
	"github.com/hashicorp/raft"
)

// Peers is how this voter reaches the others of its cluster.
//
// A directory whose log has an entry is resumed, whatever Founding says: the voters are in the log. The ledger of a lone
// node may be opened with Peers. It leads alone, under the address that it had; AddVoter then corrects its own address and
// adds the others.
type Peers struct {
	// Transport connects the voters. Its local address is this node's name. Close closes it if it is an io.Closer, also
	// after an Open that failed.
	Transport raft.Transport
	// Founding are the voters of a new ledger, in any order. Each founding node gives the same list. nil: an empty
	// directory waits until a leader adds this node.
	Founding []Voter
	// Levels returns the feature levels that the other members of the cluster read, by their ids. While one is missing,
	// the level of the ledger does not rise. nil: none is known.
	Levels func() map[string]uint32
}

// Voter is a member of a cluster. A node that lost its directory comes back with another ID: it has forgotten its votes.
type Voter struct {
	ID      string // Config.NodeID of that node, its instance
	Address string // its name
}

// foundingConfiguration returns the first entry of a new cluster's log, equal on all nodes. It returns an error unless
// the list has self, and each id and each address once.
func foundingConfiguration(voters []Voter, self Voter) (c raft.Configuration, err error) {
	seen := make(map[string]bool, 2*len(voters))
	for _, v := range voters {
		if v.ID == "" || v.Address == "" || seen["id "+v.ID] || seen["address "+v.Address] {
			return c, fmt.Errorf("clusterstore: Peers.Founding: id %q or address %q is empty or listed twice", v.ID, v.Address)
		}
		seen["id "+v.ID], seen["address "+v.Address] = true, true
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(v.ID), Address: raft.ServerAddress(v.Address)})
	}
	if !slices.Contains(voters, self) {
		return c, fmt.Errorf("clusterstore: Peers.Founding does not list this node: id %s, address %s", self.ID, self.Address)
	}
	slices.SortFunc(c.Servers, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	return c, nil
}

// consensus is raft at this node: who leads and who votes.
type consensus struct {
	view       *reader
	raft       *raft.Raft
	leading    atomic.Pointer[leadership] // nil while this node is not leader, or not ready
	background gate.Gate                  // goroutines started by callers; Close waits for them
}

// Identity returns the ids of this node and of its cluster.
func (st *storage) Identity() (node, cluster string) { return st.id.Node, st.id.Cluster }

// Leading returns the term in which this node leads and accepts proposals. ok is false while it does not.
func (co *consensus) Leading() (term uint64, ok bool) {
	lead := co.leading.Load()
	if lead == nil || co.raft.CurrentTerm() != lead.term || co.raft.State() != raft.Leader { // the notification of raft is not handled yet
		return 0, false
	}
	return lead.term, true
}

// Leader returns the address of the leader, or "" if this node knows of none. It may name a leader that has been replaced,
// or one that does not accept proposals yet.
func (co *consensus) Leader() (address string) {
	at, _ := co.raft.LeaderWithID()
	return string(at)
}

// Voters returns the voters of the latest configuration that this node has in its log, and the index of its entry; 0 while
// that entry is not applied here.
func (co *consensus) Voters() (voters []Voter, index uint64, err error) {
	voters, _, index, err = co.Servers()
	return voters, index, err
}

// Servers is Voters, with the members that get the log and do not vote.
func (co *consensus) Servers() (voters, nonvoters []Voter, index uint64, err error) {
	future := co.raft.GetConfiguration() // its Index is always 0
	if err := future.Error(); err != nil {
		return nil, nil, 0, classifyRaftError(err)
	}
	latest := future.Configuration()
	for _, server := range latest.Servers {
		if v := (Voter{ID: string(server.ID), Address: string(server.Address)}); server.Suffrage == raft.Voter {
			voters = append(voters, v)
		} else {
			nonvoters = append(nonvoters, v)
		}
	}
	if m := &co.view.fsm.published.Load().meta; bytes.Equal(m.Config, raft.EncodeConfiguration(latest)) {
		index = m.ConfigIndex
	}
	return voters, nonvoters, index, nil
}

// AwaitDeployment returns when the deployment has its name and secret, and this node has applied them. Errors: ErrClosed,
// or that of ctx.
func (r *reader) AwaitDeployment(ctx context.Context) error {
	for {
		index := r.LastApplied().Index
		if r.Header().Deployment != "" {
			return nil
		}
		if err := r.waitApplied(ctx, index+1); err != nil {
			return err
		}
	}
}

// TransferLeadership makes the voter with this id the leader; "" means the one whose log is most up to date. New work is
// rejected with ErrUnavailable meanwhile; if the other node does not answer, until the transport gives up. nil: this node
// no longer leads. Errors: ErrNotLeader, ErrClosed, that of ctx, or why nothing came of it within a second; this node then
// goes on as leader.
func (co *consensus) TransferLeadership(ctx context.Context, id string) error {
	if co.leading.Load() == nil {
		return co.notLeaderError()
	}
	voters, _, err := co.Voters()
	if err != nil {
		return err
	}
	to := slices.IndexFunc(voters, func(v Voter) bool { return v.ID == id })
	if id != "" && to < 0 {
		return fmt.Errorf("clusterstore: transfer leadership: %s is no voter", id)
	}
	err = co.await(ctx, func() error {
		if id == "" {
			return co.raft.LeadershipTransfer().Error()
		}
		return co.raft.LeadershipTransferToServer(raft.ServerID(id), raft.ServerAddress(voters[to].Address)).Error()
	})
	if errors.Is(err, raft.ErrNotLeader) {
		return ErrNotLeader
	}
	return err
}

// AddVoter makes a node a voter, or corrects the address of a voter. An empty node is added with AddNonvoter first: as a
// voter it would count for the majority before it has the log. Errors are those of Propose; effect.ErrAmbiguous means that
// the change may still be committed.
func (co *consensus) AddVoter(ctx context.Context, v Voter) error {
	return co.changeVoters(ctx, func() raft.Future {
		return co.raft.AddVoter(raft.ServerID(v.ID), raft.ServerAddress(v.Address), 0, 0)
	})
}

// AddNonvoter makes the leader send the log to a node that does not vote, or corrects the address of a member. Errors are
// those of AddVoter.
func (co *consensus) AddNonvoter(ctx context.Context, v Voter) error {
	return co.changeVoters(ctx, func() raft.Future {
		return co.raft.AddNonvoter(raft.ServerID(v.ID), raft.ServerAddress(v.Address), 0, 0)
	})
}

// RemoveServer removes a voter or nonvoter for good: its id must not come back. A leader that removes itself steps down.
// Errors are those of AddVoter.
func (co *consensus) RemoveServer(ctx context.Context, id string) error {
	return co.changeVoters(ctx, func() raft.Future { return co.raft.RemoveServer(raft.ServerID(id), 0, 0) })
}

func (co *consensus) changeVoters(ctx context.Context, change func() raft.Future) error {
	if co.leading.Load() == nil {
		return co.notLeaderError()
	}
	err := co.await(ctx, func() error { return classifyRaftError(change().Error()) })
	if err == nil || errors.Is(err, effect.ErrAmbiguous) || errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnavailable) {
		return err
	}
	return ambiguous(err) // the change goes on without its caller
}

// await waits for a call of raft, in a goroutine that Close waits for. Raft answers while it runs, and Close stops raft
// after that goroutine. Errors: that of the call, ErrClosed, or that of ctx; then the call goes on.
func (co *consensus) await(ctx context.Context, call func() error) error {
	if !co.background.Enter() {
		return ErrClosed
	}
	answer := make(chan error, 1)
	go func() {
		defer co.background.Leave()
		answer <- call()
	}()
	select {
	case err := <-answer:
		return err
	case <-co.view.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Applied returns the index of the last entry applied here, and whether this node is leader.
func (co *consensus) Applied() (index uint64, leading bool) {
	return co.view.fsm.published.Load().meta.Applied, co.leading.Load() != nil
}

func (co *consensus) notLeaderError() error {
	select {
	case <-co.view.closing:
		return ErrClosed
	default:
		return ErrNotLeader
	}
}

// Barrier returns when every entry committed before the call is applied here, so that local reads that follow are
// linearizable. Errors: ErrNotLeader, ErrClosed, or that of ctx.
func (co *consensus) Barrier(ctx context.Context) error {
	lead := co.leading.Load()
	if lead == nil || co.raft.CurrentTerm() != lead.term {
		return co.notLeaderError()
	}
	index := co.raft.CommitIndex() // includes an entry of this term, hence all committed entries of earlier terms
	if err := co.verifyLeader(ctx); err != nil {
		return err
	}
	if co.raft.CurrentTerm() != lead.term {
		return ErrNotLeader
	}
	return co.view.waitApplied(ctx, index)
}

// verifyLeader asks a majority whether this node is still leader.
func (co *consensus) verifyLeader(ctx context.Context) error {
	return co.await(ctx, func() error {
		if co.raft.VerifyLeader().Error() != nil {
			return ErrNotLeader
		}
		return nil
	})
}

func (co *consensus) voterCount() int {
	voters, _, _ := co.Voters() // without an error: raft copies its configuration
	return len(voters)
}
