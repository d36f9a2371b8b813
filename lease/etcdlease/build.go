package etcdlease

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// builder builds the messages of one batch. It allocates them in blocks: allocated one by one, they were a seventh of
// all objects allocated per flight.
type builder struct {
	s    *store
	keys []byte

	compares  []pb.Compare
	creates   []pb.Compare_CreateRevision
	requests  []pb.RequestOp
	puts      []pb.PutRequest
	putOps    []pb.RequestOp_RequestPut
	deletes   []pb.DeleteRangeRequest
	deleteOps []pb.RequestOp_RequestDeleteRange
	values    []pb.Compare_Value
}

func newBuilder(s *store, ops []*lease.Op) *builder {
	puts, deletes, bytes := 0, 0, 0
	for _, o := range ops {
		bytes += len(s.prefix) + len("k/") + len(o.Key) + len(o.Value)
		if o.Kind.Puts() {
			puts++
		} else {
			deletes++
		}
	}
	return &builder{
		s: s, keys: make([]byte, 0, bytes),
		compares: make([]pb.Compare, len(ops)), creates: make([]pb.Compare_CreateRevision, puts),
		requests: make([]pb.RequestOp, len(ops)),
		puts:     make([]pb.PutRequest, puts), putOps: make([]pb.RequestOp_RequestPut, puts),
		deletes: make([]pb.DeleteRangeRequest, deletes), deleteOps: make([]pb.RequestOp_RequestDeleteRange, deletes),
		values: make([]pb.Compare_Value, deletes),
	}
}

// takeFirst removes and returns the first element of a block.
func takeFirst[T any](block *[]T) *T {
	if len(*block) == 0 {
		return new(T) // comparisons of session keys, and nested transactions, need a few more
	}
	first := &(*block)[0]
	*block = (*block)[1:]
	return first
}

// concat returns the concatenated words in the memory of the batch.
func (b *builder) concat(words ...string) []byte {
	start := len(b.keys)
	for _, w := range words {
		b.keys = append(b.keys, w...)
	}
	return b.keys[start:len(b.keys):len(b.keys)]
}

// keyExists compares whether the key exists: the create revision of a missing key is 0.
func (b *builder) keyExists(key []byte, want bool) *pb.Compare {
	c := takeFirst(&b.compares)
	c.Key, c.Target, c.Result, c.TargetUnion = key, pb.Compare_CREATE, pb.Compare_EQUAL, takeFirst(&b.creates)
	if want {
		c.Result = pb.Compare_GREATER
	}
	return c
}

func (b *builder) sessionExists(id flight.SessionID) *pb.Compare {
	return b.keyExists([]byte(b.s.sessionKeyName(id)), true)
}

// valueIs compares the value of a key. It fails for a missing key.
func (b *builder) valueIs(key []byte, value string) *pb.Compare {
	union := takeFirst(&b.values)
	union.Value = b.concat(value)
	c := takeFirst(&b.compares)
	c.Key, c.Target, c.Result, c.TargetUnion = key, pb.Compare_VALUE, pb.Compare_EQUAL, union
	return c
}

func (b *builder) modRevisionIs(key []byte, revision int64) *pb.Compare {
	c := takeFirst(&b.compares)
	c.Key, c.Target, c.Result, c.TargetUnion = key, pb.Compare_MOD, pb.Compare_EQUAL, &pb.Compare_ModRevision{ModRevision: revision}
	return c
}

// compareAndOp returns the operation's own comparison (nil: none), without that of its session, and its put or delete.
func (b *builder) compareAndOp(o *lease.Op) (*pb.Compare, *pb.RequestOp) {
	key := b.concat(b.s.prefix, "k/", o.Key)
	switch o.Kind {
	case lease.OpClaim:
		return b.keyExists(key, false), b.put(key, b.concat(o.Value), o.Lease)
	case lease.OpReplace:
		return nil, b.put(key, b.concat(o.Value), o.Lease)
	case lease.OpRelease:
		return b.valueIs(key, o.Value), b.remove(key)
	default:
		return b.modRevisionIs(key, o.ModRevision), b.remove(key)
	}
}

func (b *builder) put(key, value []byte, on lease.LeaseID) *pb.RequestOp {
	p := takeFirst(&b.puts)
	p.Key, p.Value, p.Lease = key, value, int64(on)
	op := takeFirst(&b.putOps)
	op.RequestPut = p
	r := takeFirst(&b.requests)
	r.Request = op
	return r
}

func (b *builder) remove(key []byte) *pb.RequestOp {
	d := takeFirst(&b.deletes)
	d.Key = key
	op := takeFirst(&b.deleteOps)
	op.RequestDeleteRange = d
	r := takeFirst(&b.requests)
	r.Request = op
	return r
}

// nested builds one operation with its own comparisons. A put with an etcd lease that has ended would fail the whole
// batch. The session key is on the same lease, so comparing it lets only this operation fail.
func (b *builder) nested(o *lease.Op) *pb.RequestOp {
	cmp, op := b.compareAndOp(o)
	t := &pb.TxnRequest{Success: []*pb.RequestOp{op}}
	if cmp != nil {
		t.Compare = append(t.Compare, cmp)
	}
	if o.Kind.Puts() {
		t.Compare = append(t.Compare, b.sessionExists(o.Session))
	}
	if o.Kind == lease.OpClaim {
		t.Failure = []*pb.RequestOp{get([]byte(b.s.claimKey(o.Key)))}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}
}

func get(key []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
}

func put(key, value []byte, on lease.LeaseID) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: value, Lease: int64(on)}}}
}
