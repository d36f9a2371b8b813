package etcdlease

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// maxCompares is the limit that an etcd over the network sets on the comparisons, and on the operations, of one
// transaction. One in this process sets none.
const maxCompares = 128

// waryFor is how many batches go out nested after one whose keys were contended.
const waryFor = 16

// Transactor carries transactions to etcd. The server itself is one for those in its process.
type Transactor interface {
	Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
}

// overNetwork carries transactions through a client's connection. They are sent once: what an error leaves open is
// found out by reading.
type overNetwork struct{ kv pb.KVClient }

func (o overNetwork) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	answer, err := o.kv.Txn(ctx, r, grpc.WaitForReady(false))
	return answer, clientv3.ContextError(ctx, err)
}

// Commit implements lease.Claims.
//
// A batch goes out flat: one list of comparisons, all of which nearly always hold, and one list of puts and deletes.
// Nested transactions cost etcd a quarter to three quarters more. Where one comparison fails nothing is done, and the
// batch is sent again, nested: each operation with its own comparison, so that a key in use or a session that died
// fails alone. The next batches go nested at once, because contention comes in bursts.
func (r *registry) Commit(ctx context.Context, stamp lease.Stamp, ops []*lease.Op) (int64, error) {
	if r.wary.Load() <= 0 {
		if flat := r.flat(stamp, ops); flat != nil {
			done, err := r.carrier.Txn(ctx, flat)
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

// flat builds the batch with all comparisons at the top; nil when etcd would not take so many.
func (r *registry) flat(stamp lease.Stamp, ops []*lease.Op) *pb.TxnRequest {
	b := newBuilder(r, ops)
	t := &pb.TxnRequest{Compare: make([]*pb.Compare, 0, len(ops)+4), Success: make([]*pb.RequestOp, 0, len(ops))}
	t.Compare = append(t.Compare, r.stamped(stamp))
	var alive map[flight.SessionID]struct{}
	var last flight.SessionID
	for _, o := range ops {
		if o.Kind != lease.OpRelease && o.Session != last {
			if _, seen := alive[o.Session]; !seen {
				if alive == nil {
					alive = make(map[flight.SessionID]struct{}, 4)
				}
				alive[o.Session] = struct{}{}
				t.Compare = append(t.Compare, b.sessionLives(o.Session))
			}
			last = o.Session
		}
		cmp, op := b.parts(o)
		if cmp != nil {
			t.Compare = append(t.Compare, cmp)
		}
		t.Success = append(t.Success, op)
	}
	if !r.inProcess && len(t.Compare) > maxCompares {
		return nil
	}
	return t
}

// commitNested sends each operation as a transaction of its own inside the one for the stamp.
func (r *registry) commitNested(ctx context.Context, stamp lease.Stamp, ops []*lease.Op) (int64, error) {
	b := newBuilder(r, ops)
	nested := make([]*pb.RequestOp, len(ops))
	for i, o := range ops {
		nested[i] = b.nested(o)
	}
	done, err := r.carrier.Txn(ctx, r.guarded(r.stamped(stamp), nested...))
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
