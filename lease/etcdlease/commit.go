package etcdlease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdserverlease "go.etcd.io/etcd/server/v3/lease"
	"google.golang.org/grpc"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// maxCompares is etcd's limit of the comparisons, and of the operations, of one transaction over the network. An
// embedded server has no limit.
const maxCompares = 128

// nestedAfterConflict is the number of batches that are sent nested at once after a flat batch failed.
const nestedAfterConflict = 16

// transactor sends transactions to etcd.
type transactor interface {
	Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
}

// EmbeddedServer is the part of an embedded etcd that is called directly. Each call returns its error; a client in process
// repeats a renewal without pause while the member has no leader.
type EmbeddedServer interface {
	Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
	LeaseRenew(context.Context, etcdserverlease.LeaseID) (ttlSeconds int64, err error)
}

// grpcTransactor sends each transaction through a client's connection: once, and to another member if the first one has no
// leader, and so did nothing. Else the caller decides whether to retry.
type grpcTransactor struct {
	kv      pb.KVClient
	members int
}

func (t grpcTransactor) Txn(ctx context.Context, r *pb.TxnRequest) (answer *pb.TxnResponse, err error) {
	for range t.members {
		answer, err = t.kv.Txn(ctx, r, grpc.WaitForReady(false))
		if err = clientv3.ContextError(ctx, err); !errors.Is(err, rpctypes.ErrNoLeader) {
			break
		}
	}
	return answer, err
}

// Commit implements lease.ClaimStore.
//
// A batch is sent flat first: one list of comparisons, which nearly always hold, and one list of puts and deletes.
// Nested transactions cost etcd a quarter to three quarters more. If a comparison fails, etcd writes nothing, and the
// batch is sent again, nested: each operation has its own comparison, so that a claimed key or an ended session fails
// only its own operation. The next batches are sent nested at once, because contention comes in bursts.
//
// The batch also records how far the ledger is durable: see LedgerRecord. A full etcd rejects that put, and a batch of
// deletes with it, so these are sent again alone.
func (s *store) Commit(ctx context.Context, own lease.Ownership, ops []*lease.Op) error {
	record, done := s.record.begin()
	err := s.commit(ctx, own, ops, record)
	if record == nil {
		return err
	}
	done(err)
	if err != nil && ctx.Err() == nil && !slices.ContainsFunc(ops, func(o *lease.Op) bool { return o.Kind.Puts() }) {
		return s.commit(ctx, own, ops, nil)
	}
	return err
}

// commit sends a batch. record is an operation without a condition, or nil.
func (s *store) commit(ctx context.Context, own lease.Ownership, ops []*lease.Op, record *pb.RequestOp) error {
	if s.nestedLeft.Load() <= 0 {
		if flat := s.flat(own, ops, record); flat != nil {
			done, err := s.server.Txn(ctx, flat)
			switch {
			case err != nil:
				return err
			case done.Succeeded:
				for _, o := range ops {
					o.Done = true
				}
				return nil
			}
			s.nestedLeft.Store(nestedAfterConflict)
		}
	} else {
		s.nestedLeft.Add(-1)
	}
	return s.commitNested(ctx, own, ops, record)
}

// flat builds the batch with all comparisons at the top level, or nil if they exceed etcd's limit. record may be nil.
func (s *store) flat(own lease.Ownership, ops []*lease.Op, record *pb.RequestOp) *pb.TxnRequest {
	b := newBuilder(s, ops)
	t := &pb.TxnRequest{Compare: make([]*pb.Compare, 0, len(ops)+4), Success: make([]*pb.RequestOp, 0, len(ops)+1)}
	t.Compare = append(t.Compare, s.ownershipIs(own))
	var alive map[flight.SessionID]struct{}
	var last flight.SessionID
	for _, o := range ops {
		if o.Kind.Puts() && o.Session != last {
			if _, seen := alive[o.Session]; !seen {
				if alive == nil {
					alive = make(map[flight.SessionID]struct{}, 4)
				}
				alive[o.Session] = struct{}{}
				t.Compare = append(t.Compare, b.sessionExists(o.Session))
			}
			last = o.Session
		}
		cmp, op := b.compareAndOp(o)
		if cmp != nil {
			t.Compare = append(t.Compare, cmp)
		}
		t.Success = append(t.Success, op)
	}
	if record != nil {
		t.Success = append(t.Success, record)
	}
	if s.embedded == nil && len(t.Compare) > maxCompares {
		return nil
	}
	return t
}

// commitNested sends each operation as a nested transaction inside the transaction that compares the guard key. record
// may be nil.
func (s *store) commitNested(ctx context.Context, own lease.Ownership, ops []*lease.Op, record *pb.RequestOp) error {
	b := newBuilder(s, ops)
	nested := make([]*pb.RequestOp, len(ops), len(ops)+1)
	for i, o := range ops {
		nested[i] = b.nested(o)
	}
	if record != nil {
		nested = append(nested, record)
	}
	done, err := s.server.Txn(ctx, s.ifCurrent(s.ownershipIs(own), nested...))
	switch {
	case err != nil:
		return err
	case !done.Succeeded:
		return ownershipError(done.Responses[0])
	}
	for i, o := range ops {
		if err := s.readResult(o, done.Responses[i].GetResponseTxn()); err != nil {
			return err
		}
	}
	return nil
}

// readResult writes the result of a nested operation into o.
func (s *store) readResult(o *lease.Op, answer *pb.TxnResponse) error {
	if answer == nil {
		return fmt.Errorf("etcdlease: missing result for %q in the answer to a transaction", o.Key)
	}
	if o.Done = answer.Succeeded; o.Done || o.Kind != lease.OpClaim {
		return nil
	}
	for _, kv := range answer.Responses[0].GetResponseRange().GetKvs() {
		e := s.rawClaim(kv)
		o.Holder = &e
	}
	return nil
}
