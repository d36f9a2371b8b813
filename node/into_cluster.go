package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
)

// MoveIntoCluster prepares the data directory of a lone node that does not run to be that of node name of a new cluster, and returns
// the cluster's id. Etcd begins anew there, so the lease epoch is raised: claims of the lone node hold until its hold is over. A
// restored directory must be accepted first: MoveIntoCluster applies the acceptance, as a start of the single node would. From then
// on the directory starts with a founding directory alone.
//
// If the process dies at any point, MoveIntoCluster can be called again. Errors: *NoLedgerError, *LockedError, *LedgerLostError,
// *EtcdError, or those of the file system.
func MoveIntoCluster(ctx context.Context, cfg Config, name string) (clusterID string, err error) {
	cfg.Listen = Listen{}
	n, err := newNode(cfg)
	if err != nil {
		return "", err
	}
	if hasLedger, found, err := n.cfg.inspectData(); err != nil || !hasLedger {
		_, absent := os.Stat(n.cfg.Data)
		return "", errors.Join(err, &NoLedgerError{Dir: n.cfg.Data, Absent: absent != nil, Found: found})
	}
	clusterID, err = n.moveIntoCluster(ctx, name)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := errors.Join(err, n.parts.wait(canceled)); err != nil {
		return "", err
	}
	lock, err := lockData(n.cfg.Data)
	if err != nil {
		return "", err
	}
	aside := filepath.Join(n.cfg.Data, replacedEtcd)
	err = errors.Join(os.RemoveAll(aside), os.Rename(n.cfg.etcdDir(), aside), prepareEtcdDir(n.cfg.etcdDir()), durable.SyncDir(n.cfg.Data))
	return clusterID, errors.Join(err, lock.Close())
}

func (n *node) moveIntoCluster(ctx context.Context, name string) (clusterID string, err error) {
	if err := n.lock(); err != nil {
		return "", err
	}
	if err := n.openStores(ctx); err != nil { // it compares the ledger with what etcd has recorded
		return "", err
	}
	if err := errors.Join(n.acceptRestore(ctx), n.finishAcceptance()); err != nil { // the first start in the cluster reads no acceptance
		return "", err
	}
	raise := &flight.RaiseEpoch{From: n.store.Header().LeaseEpoch, Actor: n.cfg.Operator.Actor, Reason: n.cfg.Operator.RaiseLeaseEpoch}
	if err := raiseInLedger(ctx, n.store, n.cfg.Logger, raise, errors.New("the ledger becomes that of a cluster, with a new etcd")); err != nil {
		return "", err
	}
	for _, d := range n.store.Documents(flight.KindReplacement) { // of a cluster whose backup was restored
		if _, err := n.store.Propose(ctx, &flight.DeleteDocument{ID: d.ID, Expect: d.Version, Actor: n.cfg.Operator.Actor, Reason: n.cfg.Operator.RaiseLeaseEpoch}); err != nil {
			return "", err
		}
	}
	instance, clusterID := n.store.Identity()
	text, err := json.Marshal(members{Instances: map[string]string{name: instance}})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(n.cfg.Data, "ledger")
	return clusterID, durable.Replace(filepath.Join(dir, membersName), append(text, '\n'), 0o600)
}
