package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease/etcdlease"
)

// about returns details for operators that do not affect readiness.
func (m monitor) about(ctx context.Context) *wire.Node {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	stats := m.store.Stats()
	about := &wire.Node{
		Etcd: m.etcd.about(ctx, m.cfg.tuning.etcdQuota),
		Time: wire.Time{Time: time.Now()}, Data: m.cfg.Data, Spool: spoolStatus(stats),
		LedgerBytes: uint64(stats.StateBytes) + uint64(stats.LogBytes),
	}
	if stats.FreeKnown {
		about.DiskFree = uint64(stats.FreeBytes)
	}
	if m.certs != nil {
		about.CertificateExpires = wire.Time{Time: m.certs.Expires()}
	}
	if _, leading := m.store.Applied(); leading { // another node's is the time of its last entry
		about.LedgerTime = wire.Time{Time: m.store.Now().AsTime()}
	}
	targets, _ := m.notifyFailing()
	for name, seconds := range targets {
		if seconds >= notifyFailed.Seconds() {
			about.NotifyFailing = append(about.NotifyFailing, name)
		}
	}
	slices.Sort(about.NotifyFailing)
	return about
}

// notifyFailed is how long a target of notifications may fail until operators are told.
const notifyFailed = time.Minute

// ledgerInfo describes what the ledger holds. Without figures it says only whether the ledger is empty.
func ledgerInfo(store *clusterstore.Store, figures bool) wire.LedgerInfo {
	counts := store.Counts()
	info := wire.LedgerInfo{Empty: len(counts) == 0}
	if info.Empty || !figures {
		return info
	}
	for state, count := range counts {
		if state != flight.StateAbsent {
			info.Flights += count
		}
	}
	info.InDoubt = counts[flight.StateInDoubt]
	if page, err := store.List(flight.Query{Limit: 1}); err == nil && len(page.Flights) > 0 {
		info.Newest = wire.Time{Time: page.Flights[0].CreatedAt.AsTime()}
	}
	return info
}

// spoolStatus returns nil when the spool cannot be read.
func spoolStatus(s clusterstore.Stats) *wire.Spool {
	if s.Quarantined < 0 {
		return nil
	}
	return &wire.Spool{Waiting: s.Spooled, Quarantined: s.Quarantined}
}

// about returns nil when etcd does not answer: readiness has the error. Of several members it describes the one whose database
// is the largest, and names all.
func (e *etcd) about(ctx context.Context, quota int64) *wire.Etcd {
	about := &wire.Etcd{}
	asked, cancel := context.WithTimeout(ctx, readyTimeout/2) // a member that is away must not hide the others
	defer cancel()
	for _, m := range etcdlease.Endpoints(asked, e.client) {
		if errors.Is(m.Err, etcdlease.ErrOldServer) {
			about.Problem = m.Err.Error()
		}
		endpoint := wire.EtcdMember{URL: m.URL}
		if s := m.Status; s == nil {
			endpoint.Error = m.Err.Error()
		} else {
			endpoint.Version, about.Revision = s.Version, max(about.Revision, s.Header.Revision)
			if s.DbSize >= about.Size {
				about.Version, about.Size, about.InUse, about.Quota = s.Version, s.DbSize, s.DbSizeInUse, s.DbSizeQuota
			}
		}
		if e.member == nil {
			about.Endpoints = append(about.Endpoints, endpoint)
		}
	}
	if e.member != nil {
		about.Quota = quota
	}
	var err error
	if about.Compacted, err = e.compacted(ctx); err != nil {
		return nil
	}
	return about
}

// compacted returns the revision up to which etcd's history is compacted; 0: not at all. Etcd reports the number only
// to a watch that starts at a compacted revision.
func (e *etcd) compacted(ctx context.Context) (int64, error) {
	_, err := e.client.Get(ctx, e.root.Prefix(""), clientv3.WithRev(1), clientv3.WithKeysOnly())
	if !errors.Is(err, rpctypes.ErrCompacted) {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	for answer := range e.client.Watch(ctx, e.root.Prefix(""), clientv3.WithRev(1)) {
		if answer.CompactRevision > 0 {
			return answer.CompactRevision, nil
		}
	}
	return 0, context.Cause(ctx)
}
