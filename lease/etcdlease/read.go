package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/lease"
)

// pageSize is how many claims are read at once.
const pageSize = 2000

func (r *registry) entry(kv *mvccpb.KeyValue, seen int64) lease.Entry {
	return lease.Entry{Key: string(kv.Key[len(r.claimKey("")):]), Value: string(kv.Value), Revision: kv.CreateRevision, Seen: seen}
}

// Get implements lease.Claims: one transaction of reads, linearizable.
func (r *registry) Get(ctx context.Context, keys []string) ([]lease.Entry, int64, error) {
	ops := make([]clientv3.Op, 0, len(keys)+1)
	for _, k := range keys {
		ops = append(ops, clientv3.OpGet(r.claimKey(k)))
	}
	if len(ops) == 0 {
		ops = append(ops, clientv3.OpGet(r.guardKey(), clientv3.WithCountOnly()))
	}
	got, err := r.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, 0, err
	}
	var found []lease.Entry
	for i := range keys {
		for _, kv := range got.Responses[i].GetResponseRange().GetKvs() {
			found = append(found, r.entry(kv, got.Header.Revision))
		}
	}
	return found, got.Header.Revision, nil
}

// List implements lease.Claims.
func (r *registry) List(ctx context.Context) ([]lease.Entry, int64, error) {
	var all []lease.Entry
	revision, err := r.list(ctx, 0, func(kv *mvccpb.KeyValue) { all = append(all, r.entry(kv, kv.ModRevision)) })
	return all, revision, err
}

// list reads all claims page by page, as of one revision: the given one, or the newest for 0.
func (r *registry) list(ctx context.Context, revision int64, each func(*mvccpb.KeyValue)) (int64, error) {
	from, end := r.claimKey(""), clientv3.GetPrefixRangeEnd(r.claimKey(""))
	for {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision)}
		got, err := r.client.Get(ctx, from, opts...)
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = got.Header.Revision // later pages as of the first one's moment
		}
		for _, kv := range got.Kvs {
			each(kv)
		}
		if !got.More || len(got.Kvs) == 0 {
			return revision, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// Gone implements lease.Hints: a watch on one key, from the revision on at which the claim was seen, so that nothing
// falls between. A watch that breaks, or comes too late for the history there is, leaves the waiter to its polling.
func (r *registry) Gone(ctx context.Context, key string, seen int64) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch := r.client.Watch(clientv3.WithRequireLeader(ctx), r.claimKey(key), clientv3.WithRev(seen+1), clientv3.WithFilterPut())
	for answer := range watch {
		if len(answer.Events) > 0 {
			return
		}
	}
	<-ctx.Done()
}

// deathPause is how long deaths are gathered: each round lists the claims of the moment before.
const deathPause = 50 * time.Millisecond

// Deaths implements lease.Hints. A session's end deletes its marker and its claims in one revision; the claims are
// looked up in the revision before. Markers of retired sessions are left out.
func (r *registry) Deaths(ctx context.Context, lost func([]string)) error {
	ctx, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	events := r.client.Watch(ctx, r.markerKey(""), clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithPrevKV())
	var last time.Time
	for answer := range events {
		if err := answer.Err(); err != nil {
			return err
		}
		dead := make(map[int64][]clientv3.LeaseID) // by revision
		for _, e := range answer.Events {
			if e.PrevKv == nil {
				return errors.New("etcdlease: the history before a session's end is compacted")
			}
			if string(e.PrevKv.Value) != retired {
				dead[e.Kv.ModRevision] = append(dead[e.Kv.ModRevision], clientv3.LeaseID(e.PrevKv.Lease))
			}
		}
		for revision, leases := range dead {
			if wait := deathPause - time.Since(last); wait > 0 {
				if err := pause(ctx, wait); err != nil {
					return err
				}
			}
			keys, err := r.heldBy(ctx, revision-1, leases)
			if err != nil {
				return fmt.Errorf("etcdlease: listing the claims of a dead session: %w", err)
			}
			last = time.Now()
			lost(keys)
		}
	}
	return ctx.Err()
}

// heldBy lists the claims that stood on the leases at that revision.
func (r *registry) heldBy(ctx context.Context, revision int64, leases []clientv3.LeaseID) ([]string, error) {
	on := make(map[clientv3.LeaseID]bool, len(leases))
	for _, l := range leases {
		on[l] = true
	}
	var keys []string
	_, err := r.list(ctx, revision, func(kv *mvccpb.KeyValue) {
		if on[clientv3.LeaseID(kv.Lease)] {
			keys = append(keys, string(kv.Key[len(r.claimKey("")):]))
		}
	})
	return keys, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var _ lease.Registry = (*registry)(nil)
