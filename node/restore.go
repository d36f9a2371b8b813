package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
	"github.com/flightd/flightd/lease"
)

const (
	// acceptanceName is a file in the data directory with an operator's word about a copied or restored directory. The next
	// start acts on it and removes it.
	acceptanceName = "ACCEPTED"
	// replacedEtcd is the directory to which an accepted restore moves etcd's data: its sessions and claims belong to the
	// lost ledger. It may be deleted.
	replacedEtcd = "etcd.before-restore"
)

// Acceptance is an operator's word about a data directory that was copied or restored.
type Acceptance struct {
	Reason string `json:"reason"`
	Actor  string `json:"actor"`
	// Hold is the least time before the restore can be finished, in nanoseconds. The start raises it to the longest session
	// TTL, attempt time-out and settle delay that the ledger knows.
	Hold time.Duration `json:"hold,omitempty"`
	// Moved says that the directory was moved after a clean stop, and that no other copy of it has run. Then nothing is
	// missing, and the ledger goes on without a hold.
	Moved bool `json:"moved,omitempty"`
}

// AcceptRestore stores an operator's word in a data directory whose node does not run, and makes the directory an original:
// a copy of it, or another ledger put into it, is not accepted by this word. The next start acts on it. Errors:
// *LockedError; *flight.InvalidError if the directory has no ledger, or is that of a node of a cluster and was not moved;
// *CopiedError if it was not only moved: its node was not stopped before, or it was restored from a backup and has not run since.
// A start cannot find that out: one that is rejected closes the ledger, and the next one would find a ledger that was closed.
//
// If the process dies during AcceptRestore, the directory starts as if it had ended, or is rejected as before.
func AcceptRestore(data string, a Acceptance) error {
	if _, err := os.Stat(filepath.Join(data, "ledger")); err != nil {
		return &flight.InvalidError{Field: "data", Detail: fmt.Sprintf("%s has no ledger", data)}
	}
	if _, err := os.Stat(filepath.Join(data, "ledger", membersName)); err == nil && !a.Moved {
		return &flight.InvalidError{Field: "data", Detail: fmt.Sprintf("%s is that of a node of a cluster, and may have forgotten votes and entries: flightd cluster replace puts a new node in its place", data)}
	}
	lock, err := lockData(data)
	if err != nil {
		return err
	}
	defer lock.Close()
	if a.Moved {
		if err := checkOnlyMoved(data); err != nil {
			return err
		}
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(data, acceptanceName), append(text, '\n'), 0o600); err != nil {
		return err
	}
	return writePlace(data)
}

// checkOnlyMoved returns *CopiedError unless a node has run in the directory, and was stopped, since the directory was restored or copied: its
// ledger then lacks nothing.
func checkOnlyMoved(data string) error {
	if earlier, err := readAcceptance(data); err != nil || earlier != nil && !earlier.Moved {
		return cmp.Or[error](err, &CopiedError{Dir: data})
	}
	if _, err := os.Stat(filepath.Join(data, "ledger", placeName)); err != nil {
		return &CopiedError{Dir: data} // each start writes the file, and RestoreBackup does not
	}
	closed, err := clusterstore.WasClosed(filepath.Join(data, "ledger"))
	if err == nil && !closed {
		err = &CopiedError{Dir: data, NotOnly: true}
	}
	return err
}

// readAcceptance returns the operator's word in a data directory; nil: none.
func readAcceptance(data string) (*Acceptance, error) {
	text, err := os.ReadFile(filepath.Join(data, acceptanceName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	a := new(Acceptance)
	if err == nil {
		err = json.Unmarshal(text, a)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(data, acceptanceName), err)
	}
	return a, nil
}

// restored reports whether this start accepts a restore.
func (n *node) restored() bool { return n.acceptance != nil && !n.acceptance.Moved }

// setEtcdAside moves the data of an embedded etcd away at an accepted restore.
//
// If the process dies at any point before the acceptance is removed, the next start does the same again. Nothing is claimed
// until then.
func (n *node) setEtcdAside() error {
	if !n.restored() {
		return nil
	}
	if _, err := os.Stat(n.cfg.etcdDir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return n.moveEtcdAside()
}

func (n *node) moveEtcdAside() error {
	aside := filepath.Join(n.cfg.Data, replacedEtcd)
	return errors.Join(os.RemoveAll(aside), os.Rename(n.cfg.etcdDir(), aside), durable.SyncDir(n.cfg.Data))
}

// acceptRestore proposes the operator's word.
//
// If the process dies after the proposal was committed, the next start proposes it again: the epochs rise once more, and
// the hold begins again.
func (n *node) acceptRestore(ctx context.Context) error {
	a := n.acceptance
	if a == nil {
		return n.openAsked()
	}
	c := &flight.Restore{From: n.store.Header().StoreEpoch, Actor: a.Actor, Reason: a.Reason, Moved: a.Moved}
	if !a.Moved {
		longest, err := longestEffect(n.store)
		if err != nil {
			return err
		}
		c.Hold = max(a.Hold, lease.MaxTTL+longest)
	}
	reply, err := n.store.Propose(ctx, c)
	if err == nil && reply.Decision != flight.DecisionAccepted {
		err = fmt.Errorf("the ledger decided %v", reply.Decision)
	}
	if err != nil {
		return fmt.Errorf("accept the restore: %w", err)
	}
	if a.Moved {
		n.cfg.Logger.Warn("an operator says that this data directory was moved, and that no other copy has run", "actor", a.Actor, "reason", a.Reason)
	} else {
		n.cfg.Logger.Warn("an operator has accepted this data directory as a restored one", "actor", a.Actor, "reason", a.Reason, "hold", c.Hold)
	}
	return n.openAsked()
}

// openAsked reads the keys that were asked for since the last restore, while that is not finished.
func (n *node) openAsked() error {
	if n.store.Header().Reconciling {
		n.cfg.Logger.Warn("the ledger was restored: nothing opens before flightd restore finish; flightd restore asked lists what callers want")
	}
	asked, err := openAsked(filepath.Join(n.cfg.Data, askedName), n.store.Header().Reconciling, n.cfg.Logger)
	n.asked.Store(asked)
	return err
}

// finishAcceptance removes the operator's word: it was acted on.
func (n *node) finishAcceptance() error {
	if n.acceptance == nil {
		return nil
	}
	return errors.Join(os.Remove(filepath.Join(n.cfg.Data, acceptanceName)), durable.SyncDir(n.cfg.Data))
}

// longestEffect returns the longest attempt time-out and settle delay together of any flight that the ledger knows: an
// attempt of the lost ledger is expected to have no longer ones.
func longestEffect(store *clusterstore.Store) (longest time.Duration, err error) {
	q := flight.Query{Limit: 500}
	for {
		page, err := store.List(q)
		if err != nil {
			return 0, err
		}
		for _, f := range page.Flights {
			longest = max(longest, f.Policy.AttemptTimeout+f.Policy.SettleDelay)
		}
		if !page.More {
			return longest, nil
		}
		q.After = page.Next
	}
}
