package etcdlease

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdserverlease "go.etcd.io/etcd/server/v3/lease"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// store implements lease.Store. Its keys:
//
//	<prefix>guard          the guard key: deployment and lease epoch
//	<prefix>counter        the counter of the guard key
//	<prefix>s/<session>    session key, on the etcd lease of its session
//	<prefix>k/<key>        claim, on the etcd lease of its session
//	<prefix>ledger/<node>  see LedgerRecord
type store struct {
	client     *clientv3.Client
	server     transactor
	embedded   EmbeddedServer // nil for a remote etcd
	prefix     string
	record     *LedgerRecord
	nestedLeft atomic.Int32 // number of batches to send nested at once, after a flat batch failed
}

var _ lease.Store = (*store)(nil)

// newStore sends transactions to the embedded server if there is one, else through the client.
func newStore(client *clientv3.Client, embedded EmbeddedServer, prefix string, record *LedgerRecord) *store {
	s := &store{client: client, server: embedded, embedded: embedded, prefix: prefix, record: record}
	if embedded == nil {
		s.server = grpcTransactor{kv: clientv3.RetryKVClient(client), members: len(client.Endpoints())}
	}
	return s
}

func (s *store) guardKey() string                          { return s.prefix + "guard" }
func (s *store) counterKey() string                        { return s.prefix + "counter" }
func (s *store) sessionKeyName(id flight.SessionID) string { return s.prefix + "s/" + string(id) }
func (s *store) claimKey(key string) string                { return s.prefix + "k/" + key }

func absent(key string) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0},
	}
}

func valueIs(key, value string) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Target: pb.Compare_VALUE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_Value{Value: []byte(value)},
	}
}

func (s *store) ownershipIs(own lease.Ownership) *pb.Compare {
	return valueIs(s.guardKey(), ownerValue(own))
}

// ifCurrent returns a transaction that performs the operations if the condition on the guard key holds, and else reads
// it.
func (s *store) ifCurrent(condition *pb.Compare, then ...*pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{condition}, Success: then, Failure: []*pb.RequestOp{get([]byte(s.guardKey()))}}
}

// ownershipError decodes the guard key from the failure branch of a transaction.
func ownershipError(answer *pb.ResponseOp) error {
	found, err := decodeOwner(answer.GetResponseRange().GetKvs())
	if err != nil {
		return err
	}
	return &lease.OwnershipError{Found: found}
}

func (s *store) SetOwnership(ctx context.Context, old *lease.Ownership, own lease.Ownership) error {
	condition := absent(s.guardKey())
	if old != nil {
		condition = s.ownershipIs(*old)
	}
	done, err := s.server.Txn(ctx, s.ifCurrent(condition, put([]byte(s.guardKey()), []byte(ownerValue(own)), 0)))
	if err != nil {
		return err
	}
	if !done.Succeeded {
		return ownershipError(done.Responses[0])
	}
	return nil
}

func (s *store) RaiseCounter(ctx context.Context, own lease.Ownership, from uint64) (bool, error) {
	condition := valueIs(s.counterKey(), strconv.FormatUint(from, 10))
	if from == 0 {
		condition = absent(s.counterKey())
	}
	raise := s.ifCurrent(s.ownershipIs(own), put([]byte(s.counterKey()), strconv.AppendUint(nil, from+1, 10), 0))
	raise.Compare = append(raise.Compare, condition)
	done, err := s.server.Txn(ctx, raise)
	if err != nil || done.Succeeded {
		return err == nil, err
	}
	var other *lease.OwnershipError
	if err := ownershipError(done.Responses[0]); !errors.As(err, &other) || other.Found == nil || *other.Found != own {
		return false, err
	}
	return false, nil
}

// sessionKeyValue is the value of a session key: JSON, which people can read with etcdctl.
type sessionKeyValue struct {
	TTL         int64  `json:"ttl_ms"`
	Epoch       uint32 `json:"epoch"`
	Kept        bool   `json:"kept,omitempty"`
	OneShot     bool   `json:"one_shot,omitempty"`
	Incarnation string `json:"incarnation"` // of the process that created it
	Node        string `json:"node,omitempty"`
	Owner       string `json:"owner,omitempty"`
}

// Grant implements lease.EtcdLeases. If the process dies between lease and session key, a lease without keys expires.
func (s *store) Grant(ctx context.Context, own lease.Ownership, m lease.SessionKey) (lease.Granted, error) {
	granted, err := s.client.Grant(ctx, int64(m.TTL/time.Second))
	if err != nil {
		return lease.Granted{}, err
	}
	g := lease.Granted{Lease: lease.LeaseID(granted.ID), TTL: time.Duration(granted.TTL) * time.Second}
	value, err := json.Marshal(sessionKeyValue{
		TTL: g.TTL.Milliseconds(), Epoch: m.Session.Epoch, Kept: m.AutoRenew, OneShot: m.Session.OneShot,
		Incarnation: hex.EncodeToString(m.Incarnation[:]), Node: m.Node, Owner: m.Owner,
	})
	if err != nil {
		return lease.Granted{}, err
	}
	done, err := s.server.Txn(ctx, s.ifCurrent(s.ownershipIs(own), put([]byte(s.sessionKeyName(m.Session.ID)), value, g.Lease)))
	if err != nil {
		return lease.Granted{}, err
	}
	if !done.Succeeded {
		return lease.Granted{}, ownershipError(done.Responses[0])
	}
	g.Revision = done.Header.Revision
	return g, nil
}

func (s *store) Renew(ctx context.Context, id lease.LeaseID) (time.Duration, error) {
	seconds, err := s.renewOnce(ctx, id)
	switch {
	case errors.Is(err, etcdserverlease.ErrLeaseNotFound), err == nil && seconds <= 0:
		return 0, fmt.Errorf("%w: its etcd lease is gone", lease.ErrLost)
	case err != nil:
		return 0, err
	}
	return time.Duration(seconds) * time.Second, nil
}

// renewOnce renews a lease with one request, over the network with at most one to each member, and returns its TTL; 0 or
// etcdserverlease.ErrLeaseNotFound when there is no such lease. The client's own methods repeat a failed request at once and
// for ever, over the network and in process. An embedded server without a leader waits for one, as long as ctx and its request
// time-out allow; a remote one rejects the request, and another member may have a leader.
func (s *store) renewOnce(ctx context.Context, id lease.LeaseID) (seconds int64, err error) {
	if s.embedded != nil {
		return s.embedded.LeaseRenew(ctx, etcdserverlease.LeaseID(id))
	}
	for range s.client.Endpoints() {
		seconds, err = s.renewRemote(ctx, id)
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			break
		}
	}
	return seconds, clientv3.ContextError(ctx, err)
}

// renewRemote sends one request to one member.
func (s *store) renewRemote(ctx context.Context, id lease.LeaseID) (seconds int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil && !errors.Is(err, io.EOF) { // Recv has the cause of EOF
		return 0, err
	}
	answer, err := stream.Recv()
	return answer.GetTTL(), err
}

func (s *store) Revoke(ctx context.Context, id lease.LeaseID) error {
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(id))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

func (s *store) SessionKey(ctx context.Context, id flight.SessionID) (*lease.SessionKey, error) {
	if id == "" {
		return nil, nil
	}
	got, err := s.client.Get(ctx, s.sessionKeyName(id))
	if err != nil || len(got.Kvs) == 0 {
		return nil, err
	}
	m, err := s.decodeSessionKey(got.Kvs[0])
	return &m, err
}

func (s *store) SessionKeys(ctx context.Context) ([]lease.SessionKey, error) {
	got, err := s.client.Get(ctx, s.sessionKeyName(""), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	list := make([]lease.SessionKey, len(got.Kvs))
	for i, kv := range got.Kvs {
		if list[i], err = s.decodeSessionKey(kv); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *store) decodeSessionKey(kv *mvccpb.KeyValue) (lease.SessionKey, error) {
	var m sessionKeyValue
	if err := json.Unmarshal(kv.Value, &m); err != nil {
		return lease.SessionKey{}, fmt.Errorf("%w: session key %q: %w", ErrUnreadable, kv.Key, err)
	}
	read := lease.SessionKey{
		Session: flight.Session{
			ID: flight.SessionID(kv.Key[len(s.sessionKeyName("")):]), Revision: kv.CreateRevision, Epoch: m.Epoch, OneShot: m.OneShot,
		},
		Lease: lease.LeaseID(kv.Lease), TTL: time.Duration(m.TTL) * time.Millisecond, AutoRenew: m.Kept, Node: m.Node, Owner: m.Owner,
	}
	if n, err := hex.Decode(read.Incarnation[:], []byte(m.Incarnation)); err != nil || n != len(read.Incarnation) {
		return lease.SessionKey{}, fmt.Errorf("%w: session key %q: invalid incarnation", ErrUnreadable, kv.Key)
	}
	return read, nil
}
