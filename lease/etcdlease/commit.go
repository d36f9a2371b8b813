package etcdlease

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// maxCompares is etcd's limit on the comparisons, and on the operations, of one transaction.
const maxCompares = 128

// waryFor is how many batches go out nested after one whose keys were contended.
const waryFor = 16

// Commit implements lease.Claims.
//
// A batch goes out flat: one list of comparisons, all of which nearly always hold, and one list of puts and deletes.
// Nested transactions cost etcd a quarter to three quarters more. Where one comparison fails nothing is done, and the
// batch is sent again, nested: each operation with its own comparison, so that a key in use or a session that died
// fails alone. The next batches go nested at once, because contention comes in bursts.
func (r *registry) Commit(ctx context.Context, stamp lease.Stamp, ops []*lease.Op) (int64, error) {
	if r.wary.Load() <= 0 {
		if flat := r.flat(stamp, ops); flat != nil {
			done, err := r.client.Txn(ctx).If(flat.cmps...).Then(flat.ops...).Commit()
			switch {
			case err != nil:
				return 0, err
			case done.Succeeded:
				for _, o := range ops {
					o.Done = true
				}
				return done.Header.Revision, nil
			}
			r.wary.Store(waryFor)
		}
	} else {
		r.wary.Add(-1)
	}
	return r.commitNested(ctx, stamp, ops)
}

// transaction is the parts of an etcd transaction that is still being built.
type transaction struct {
	cmps []clientv3.Cmp
	ops  []clientv3.Op
}

// flat builds the batch with all comparisons at the top; nil when etcd would not take so many.
func (r *registry) flat(stamp lease.Stamp, ops []*lease.Op) *transaction {
	t := &transaction{cmps: make([]clientv3.Cmp, 0, len(ops)+4), ops: make([]clientv3.Op, 0, len(ops))}
	t.cmps = append(t.cmps, r.stamped(stamp))
	var alive map[flight.SessionID]struct{}
	var last flight.SessionID
	for _, o := range ops {
		if o.Kind != lease.OpRelease && o.Session != last {
			if _, seen := alive[o.Session]; !seen {
				if alive == nil {
					alive = make(map[flight.SessionID]struct{}, 4)
				}
				alive[o.Session] = struct{}{}
				t.cmps = append(t.cmps, r.sessionLives(o.Session))
			}
			last = o.Session
		}
		cmp, op := r.parts(o)
		if cmp != nil {
			t.cmps = append(t.cmps, *cmp)
		}
		t.ops = append(t.ops, op)
	}
	if len(t.cmps) > maxCompares {
		return nil
	}
	return t
}

func (r *registry) sessionLives(id flight.SessionID) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(r.markerKey(id)), ">", 0)
}

// parts gives an operation's own comparison, without that of its session, and what it does.
func (r *registry) parts(o *lease.Op) (*clientv3.Cmp, clientv3.Op) {
	switch o.Kind {
	case lease.OpClaim:
		key := r.claimKey(o.Key)
		cmp := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		return &cmp, clientv3.OpPut(key, o.Value, clientv3.WithLease(clientv3.LeaseID(o.Lease)))
	case lease.OpRelease:
		key := r.claimKey(o.Key)
		cmp := clientv3.Compare(clientv3.CreateRevision(key), "=", o.Revision)
		return &cmp, clientv3.OpDelete(key)
	default:
		return nil, clientv3.OpPut(r.markerKey(o.Session), retired, clientv3.WithLease(clientv3.LeaseID(o.Lease)))
	}
}

// commitNested sends each operation as a transaction of its own inside the one for the stamp.
func (r *registry) commitNested(ctx context.Context, stamp lease.Stamp, ops []*lease.Op) (int64, error) {
	nested := make([]clientv3.Op, len(ops))
	for i, o := range ops {
		nested[i] = r.nested(o)
	}
	done, err := r.client.Txn(ctx).If(r.stamped(stamp)).Then(nested...).Else(clientv3.OpGet(r.guardKey())).Commit()
	switch {
	case err != nil:
		return 0, err
	case !done.Succeeded:
		return 0, stampError(done.Responses[0])
	}
	for i, o := range ops {
		if err := r.read(o, done.Responses[i].GetResponseTxn(), done.Header.Revision); err != nil {
			return 0, err
		}
	}
	return done.Header.Revision, nil
}

// nested is one operation with its own comparisons. The put names a lease, and a put with a dead lease would fail the
// whole batch: the comparison of the marker, which is on that lease, lets it fail softly.
func (r *registry) nested(o *lease.Op) clientv3.Op {
	cmp, op := r.parts(o)
	var cmps []clientv3.Cmp
	var otherwise []clientv3.Op
	if cmp != nil {
		cmps = append(cmps, *cmp)
	}
	if o.Kind != lease.OpRelease {
		cmps = append(cmps, r.sessionLives(o.Session))
	}
	if o.Kind == lease.OpClaim {
		otherwise = append(otherwise, clientv3.OpGet(r.claimKey(o.Key)))
	}
	return clientv3.OpTxn(cmps, []clientv3.Op{op}, otherwise)
}

// read writes the answer to a nested operation into it.
func (r *registry) read(o *lease.Op, answer *pb.TxnResponse, revision int64) error {
	if answer == nil {
		return fmt.Errorf("etcdlease: etcd answered a transaction without the answer for %q", o.Key)
	}
	if o.Done = answer.Succeeded; o.Done || o.Kind != lease.OpClaim {
		return nil
	}
	for _, kv := range answer.Responses[0].GetResponseRange().GetKvs() {
		e := r.entry(kv, revision)
		o.Holder = &e
	}
	return nil
}
