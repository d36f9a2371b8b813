package etcdlease

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// builder makes the messages of one batch. They are taken from blocks that are allocated once for the whole batch:
// one by one they were a seventh of all objects that a flight costs.
type builder struct {
	r    *registry
	keys []byte

	compares  []pb.Compare
	revisions []pb.Compare_CreateRevision
	requests  []pb.RequestOp
	puts      []pb.PutRequest
	putOps    []pb.RequestOp_RequestPut
	deletes   []pb.DeleteRangeRequest
	deleteOps []pb.RequestOp_RequestDeleteRange
}

func newBuilder(r *registry, ops []*lease.Op) *builder {
	puts, deletes, bytes := 0, 0, 0
	for _, o := range ops {
		bytes += len(r.prefix) + len("k/") + len(o.Key) + len(o.Value)
		if o.Kind == lease.OpRelease {
			deletes++
		} else {
			puts++
		}
	}
	return &builder{
		r: r, keys: make([]byte, 0, bytes),
		compares: make([]pb.Compare, len(ops)), revisions: make([]pb.Compare_CreateRevision, len(ops)),
		requests: make([]pb.RequestOp, len(ops)),
		puts:     make([]pb.PutRequest, puts), putOps: make([]pb.RequestOp_RequestPut, puts),
		deletes: make([]pb.DeleteRangeRequest, deletes), deleteOps: make([]pb.RequestOp_RequestDeleteRange, deletes),
	}
}

// next takes the first of a block.
func next[T any](block *[]T) *T {
	if len(*block) == 0 {
		return new(T) // nested transactions need a few more
	}
	one := &(*block)[0]
	*block = (*block)[1:]
	return one
}

// bytes keeps the words in one piece of the batch's memory.
func (b *builder) bytes(words ...string) []byte {
	start := len(b.keys)
	for _, w := range words {
		b.keys = append(b.keys, w...)
	}
	return b.keys[start:len(b.keys):len(b.keys)]
}

// created compares the revision at which a key was created; that of a key that is not there is 0.
func (b *builder) created(key []byte, result pb.Compare_CompareResult, revision int64) *pb.Compare {
	union := next(&b.revisions)
	union.CreateRevision = revision
	c := next(&b.compares)
	c.Key, c.Target, c.Result, c.TargetUnion = key, pb.Compare_CREATE, result, union
	return c
}

func (b *builder) sessionLives(id flight.SessionID) *pb.Compare {
	return b.created([]byte(b.r.markerKey(id)), pb.Compare_GREATER, 0)
}

// parts gives an operation's own comparison, without that of its session, and what it does.
func (b *builder) parts(o *lease.Op) (*pb.Compare, *pb.RequestOp) {
	switch o.Kind {
	case lease.OpClaim:
		key := b.bytes(b.r.prefix, "k/", o.Key)
		return b.created(key, pb.Compare_EQUAL, 0), b.put(key, b.bytes(o.Value), o.Lease)
	case lease.OpRelease:
		key := b.bytes(b.r.prefix, "k/", o.Key)
		return b.created(key, pb.Compare_EQUAL, o.Revision), b.remove(key)
	default:
		return nil, b.put([]byte(b.r.markerKey(o.Session)), []byte(retired), o.Lease)
	}
}

func (b *builder) put(key, value []byte, on lease.LeaseID) *pb.RequestOp {
	p := next(&b.puts)
	p.Key, p.Value, p.Lease = key, value, int64(on)
	op := next(&b.putOps)
	op.RequestPut = p
	r := next(&b.requests)
	r.Request = op
	return r
}

func (b *builder) remove(key []byte) *pb.RequestOp {
	d := next(&b.deletes)
	d.Key = key
	op := next(&b.deleteOps)
	op.RequestDeleteRange = d
	r := next(&b.requests)
	r.Request = op
	return r
}

// nested is one operation with its own comparisons. The put names a lease, and a put with a dead lease would fail the
// whole batch: the comparison of the marker, which is on that lease, lets it fail softly.
func (b *builder) nested(o *lease.Op) *pb.RequestOp {
	cmp, op := b.parts(o)
	t := &pb.TxnRequest{Success: []*pb.RequestOp{op}}
	if cmp != nil {
		t.Compare = append(t.Compare, cmp)
	}
	if o.Kind != lease.OpRelease {
		t.Compare = append(t.Compare, b.sessionLives(o.Session))
	}
	if o.Kind == lease.OpClaim {
		t.Failure = []*pb.RequestOp{get([]byte(b.r.claimKey(o.Key)))}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}
}

func get(key []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
}

func put(key, value []byte, on lease.LeaseID) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: value, Lease: int64(on)}}}
}
