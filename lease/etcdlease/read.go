package etcdlease

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// pageSize is the number of claims in one read.
const pageSize = 2000

func (s *store) rawClaim(kv *mvccpb.KeyValue) lease.RawClaim {
	return lease.RawClaim{Key: string(kv.Key[len(s.claimKey("")):]), Value: string(kv.Value), ModRevision: kv.ModRevision}
}

// List implements lease.ClaimStore. It reads page by page, all pages as of the revision of the first one.
func (s *store) List(ctx context.Context) (all []lease.RawClaim, err error) {
	from, end := s.claimKey(""), clientv3.GetPrefixRangeEnd(s.claimKey(""))
	for revision := int64(0); ; {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision)}
		got, err := s.client.Get(ctx, from, opts...)
		if err != nil {
			return nil, err
		}
		revision = cmp.Or(revision, got.Header.Revision)
		for _, kv := range got.Kvs {
			all = append(all, s.rawClaim(kv))
		}
		if !got.More || len(got.Kvs) == 0 {
			return all, nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

func (s *store) ReadGuard(ctx context.Context) (lease.GuardState, error) {
	state, _, err := s.readGuardAnd(ctx, nil)
	return state, err
}

// maxIDs is the largest number of session keys that are read one by one; for more ids, all session keys are read.
const maxIDs = maxCompares - 8

func (s *store) ReadLiving(ctx context.Context, ids []flight.SessionID) (lease.GuardState, []flight.SessionID, error) {
	var reads []*pb.RangeRequest
	if len(ids) == 0 || len(ids) > maxIDs {
		all := s.sessionKeyName("")
		reads = []*pb.RangeRequest{{Key: []byte(all), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(all)), KeysOnly: true}}
	} else {
		for _, id := range ids {
			reads = append(reads, &pb.RangeRequest{Key: []byte(s.sessionKeyName(id)), KeysOnly: true})
		}
	}
	state, kvs, err := s.readGuardAnd(ctx, reads)
	if err != nil {
		return lease.GuardState{}, nil, err
	}
	living := make([]flight.SessionID, len(kvs))
	for i, kv := range kvs {
		living[i] = flight.SessionID(kv.Key[len(s.sessionKeyName("")):])
	}
	return state, living, nil
}

// readGuardAnd reads the guard key, its counter and the given ranges in one transaction, which is linearizable.
func (s *store) readGuardAnd(ctx context.Context, more []*pb.RangeRequest) (state lease.GuardState, kvs []*mvccpb.KeyValue, err error) {
	ops := []*pb.RequestOp{get([]byte(s.guardKey())), get([]byte(s.counterKey()))}
	for _, r := range more {
		ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}})
	}
	got, err := s.server.Txn(ctx, &pb.TxnRequest{Success: ops})
	if err != nil {
		return state, nil, err
	}
	if len(got.Responses) != len(ops) {
		return state, nil, fmt.Errorf("etcdlease: etcd answered %d of %d reads", len(got.Responses), len(ops))
	}
	answer := func(i int) []*mvccpb.KeyValue { return got.Responses[i].GetResponseRange().GetKvs() }
	state.Revision = got.Header.Revision
	if state.Owner, err = decodeOwner(answer(0)); err != nil {
		return state, nil, err
	}
	if state.Counter, err = decodeCounter(answer(1)); err != nil {
		return state, nil, err
	}
	for i := range more {
		kvs = append(kvs, answer(2+i)...)
	}
	return state, kvs, nil
}

// ownerValue returns the value of the guard key: text, which people can read with etcdctl.
func ownerValue(o lease.Ownership) string {
	return "flightd 1 " + strconv.FormatUint(uint64(o.Epoch), 10) + " " + o.Deployment
}

func parseOwner(v string) (lease.Ownership, error) {
	word := strings.SplitN(v, " ", 4)
	if len(word) == 4 && word[0] == "flightd" && word[1] == "1" {
		if epoch, err := strconv.ParseUint(word[2], 10, 32); err == nil {
			return lease.Ownership{Deployment: word[3], Epoch: uint32(epoch)}, nil
		}
	}
	return lease.Ownership{}, fmt.Errorf("%w: guard key: unknown format %q", ErrUnreadable, v)
}

func decodeOwner(kvs []*mvccpb.KeyValue) (*lease.Ownership, error) {
	if len(kvs) == 0 {
		return nil, nil
	}
	o, err := parseOwner(string(kvs[0].Value))
	return &o, err
}

func decodeCounter(kvs []*mvccpb.KeyValue) (uint64, error) {
	if len(kvs) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(kvs[0].Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: counter of the guard key: %q is not a number", ErrUnreadable, kvs[0].Value)
	}
	return n, nil
}

func (s *store) WatchSessionKeys(ctx context.Context, deleted func(flight.SessionID)) error {
	ctx, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	for answer := range s.client.Watch(ctx, s.sessionKeyName(""), clientv3.WithPrefix(), clientv3.WithFilterPut()) {
		if err := answer.Err(); err != nil {
			return err
		}
		for _, e := range answer.Events {
			deleted(flight.SessionID(e.Kv.Key[len(s.sessionKeyName("")):]))
		}
	}
	return ctx.Err()
}
