package etcdlease

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// registry stores claims in etcd: lease.Registry.
//
//	<prefix>guard          whose prefix this is, and in which lease epoch
//	<prefix>s/<session>    a session's marker, on its lease
//	<prefix>k/<key>        a claim, on its session's lease
//
// In an etcd of their own nodes keep <prefix>ledger beside it: see LedgerIndex.
type registry struct {
	client    *clientv3.Client
	carrier   Transactor // of batches
	inProcess bool       // carrier is etcd itself
	prefix    string
	// wary counts down the batches to send nested at once, after one in which keys were contended.
	wary atomic.Int32
}

// newRegistry uses the client, and the server itself where there is one in this process.
func newRegistry(client *clientv3.Client, server Transactor, prefix string) *registry {
	r := &registry{client: client, carrier: server, inProcess: server != nil, prefix: prefix}
	if server == nil {
		r.carrier = overNetwork{clientv3.RetryKVClient(client)}
	}
	return r
}

func (r *registry) guardKey() string                     { return r.prefix + "guard" }
func (r *registry) markerKey(id flight.SessionID) string { return r.prefix + "s/" + string(id) }
func (r *registry) claimKey(key string) string           { return r.prefix + "k/" + key }

// stampValue is the content of the guard key, for machines and for people with etcdctl.
func stampValue(s lease.Stamp) string {
	return "flightd 1 " + strconv.FormatUint(uint64(s.Epoch), 10) + " " + s.Deployment
}

func parseStamp(v string) (lease.Stamp, error) {
	word := strings.SplitN(v, " ", 4)
	if len(word) == 4 && word[0] == "flightd" && word[1] == "1" {
		if epoch, err := strconv.ParseUint(word[2], 10, 32); err == nil {
			return lease.Stamp{Deployment: word[3], Epoch: uint32(epoch)}, nil
		}
	}
	return lease.Stamp{}, fmt.Errorf("%w: the guard key holds %q, which is not of this version", ErrUnreadable, v)
}

func (r *registry) stamped(s lease.Stamp) *pb.Compare {
	return &pb.Compare{
		Key: []byte(r.guardKey()), Target: pb.Compare_VALUE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_Value{Value: []byte(stampValue(s))},
	}
}

// Stamp implements lease.Stamps.
func (r *registry) Stamp(ctx context.Context) (*lease.Stamp, int64, error) {
	got, err := r.client.Get(ctx, r.guardKey())
	if err != nil {
		return nil, 0, err
	}
	found, err := stampOf(got.Kvs)
	return found, got.Header.Revision, err
}

func stampOf(kvs []*mvccpb.KeyValue) (*lease.Stamp, error) {
	if len(kvs) == 0 {
		return nil, nil
	}
	s, err := parseStamp(string(kvs[0].Value))
	return &s, err
}

// guarded does something if the guard key is as it should be, and else tells what it is.
func (r *registry) guarded(as *pb.Compare, do ...*pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{as}, Success: do, Failure: []*pb.RequestOp{get([]byte(r.guardKey()))}}
}

// SetStamp implements lease.Stamps.
func (r *registry) SetStamp(ctx context.Context, old *lease.Stamp, s lease.Stamp) error {
	as := &pb.Compare{
		Key: []byte(r.guardKey()), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0},
	}
	if old != nil {
		as = r.stamped(*old)
	}
	done, err := r.carrier.Txn(ctx, r.guarded(as, put([]byte(r.guardKey()), []byte(stampValue(s)), 0)))
	if err != nil {
		return err
	}
	if !done.Succeeded {
		return stampError(done.Responses[0])
	}
	return nil
}

// stampError reads the guard key out of the answer of a transaction that found another one.
func stampError(answer *pb.ResponseOp) error {
	found, err := stampOf(answer.GetResponseRange().GetKvs())
	if err != nil {
		return err
	}
	return &lease.StampError{Found: found}
}

// marker is the value of a session's marker key.
type marker struct {
	TTL     int64  `json:"ttl_ms"`
	Epoch   uint32 `json:"epoch"`
	Kept    bool   `json:"kept,omitempty"`
	Boot    string `json:"boot"`
	Node    string `json:"node,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Retired bool   `json:"retired,omitempty"`
}

// retired is the value of the marker of a session that ends with nothing lost.
const retired = `{"retired":true}`

// Grant implements lease.Leases. If the process dies between lease and marker, the lease ends by itself, empty.
func (r *registry) Grant(ctx context.Context, stamp lease.Stamp, m lease.Marker) (lease.Granted, error) {
	granted, err := r.client.Grant(ctx, int64(m.TTL/time.Second))
	if err != nil {
		return lease.Granted{}, err
	}
	g := lease.Granted{Lease: lease.LeaseID(granted.ID), TTL: time.Duration(granted.TTL) * time.Second}
	value, err := json.Marshal(marker{
		TTL: g.TTL.Milliseconds(), Epoch: m.Epoch, Kept: m.Kept, Boot: hex.EncodeToString(m.Boot[:]), Node: m.Node, Owner: m.Owner,
	})
	if err != nil {
		return lease.Granted{}, err
	}
	done, err := r.carrier.Txn(ctx, r.guarded(r.stamped(stamp), put([]byte(r.markerKey(m.Session)), value, g.Lease)))
	if err != nil {
		return lease.Granted{}, err
	}
	if !done.Succeeded {
		return lease.Granted{}, stampError(done.Responses[0])
	}
	g.Revision = done.Header.Revision
	return g, nil
}

// Renew implements lease.Leases.
func (r *registry) Renew(ctx context.Context, id lease.LeaseID) (time.Duration, error) {
	ttl, err := keepAliveOnce(ctx, r.client, clientv3.LeaseID(id))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, fmt.Errorf("%w: its etcd lease is gone", lease.ErrLost)
	}
	return ttl, err
}

// keepAliveOnce renews over a stream of its own where there is a connection: the client's own method repeats a failed
// try at once and for ever, without a pause. In the server's own process it does not fail that way.
func keepAliveOnce(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) (time.Duration, error) {
	conn := client.ActiveConnection()
	if conn == nil {
		answer, err := client.KeepAliveOnce(ctx, id)
		if err != nil {
			return 0, err
		}
		return time.Duration(answer.TTL) * time.Second, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	answer, err := stream.Recv()
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if answer.TTL <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(answer.TTL) * time.Second, nil
}

// Revoke implements lease.Leases.
func (r *registry) Revoke(ctx context.Context, id lease.LeaseID) error {
	_, err := r.client.Revoke(ctx, clientv3.LeaseID(id))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// Markers implements lease.Leases.
func (r *registry) Markers(ctx context.Context, id flight.SessionID) ([]lease.Marker, error) {
	var opts []clientv3.OpOption
	if id == "" {
		opts = append(opts, clientv3.WithPrefix())
	}
	got, err := r.client.Get(ctx, r.markerKey(id), opts...)
	if err != nil {
		return nil, err
	}
	list := make([]lease.Marker, 0, len(got.Kvs))
	for _, kv := range got.Kvs {
		var m marker
		if err := json.Unmarshal(kv.Value, &m); err != nil {
			return nil, fmt.Errorf("etcdlease: marker %q: %w", kv.Key, err)
		}
		if m.Retired {
			continue
		}
		one := lease.Marker{
			Session: flight.SessionID(kv.Key[len(r.markerKey("")):]), Lease: lease.LeaseID(kv.Lease),
			TTL: time.Duration(m.TTL) * time.Millisecond, Epoch: m.Epoch, Kept: m.Kept, Node: m.Node, Owner: m.Owner,
		}
		if n, err := hex.Decode(one.Boot[:], []byte(m.Boot)); err != nil || n != len(one.Boot) {
			return nil, fmt.Errorf("etcdlease: marker %q names no boot", kv.Key)
		}
		list = append(list, one)
	}
	return list, nil
}
