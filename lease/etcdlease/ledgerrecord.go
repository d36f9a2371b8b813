package etcdlease

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Entry names an entry of the ledger's log.
type Entry struct{ Index, Term uint64 }

// LedgerRecord keeps in etcd which entry of the ledger is durable on a node. A ledger that does not hold a recorded entry
// is older than it was, or another one. Each node writes a key of its own, with each batch of claims and of releases, and
// when its owner calls Write.
type LedgerRecord struct {
	Client     *clientv3.Client
	Root       Root
	Deployment string
	Node       string
	Durable    func() Entry // the last entry that the node cannot lose in a crash

	writing  atomic.Bool   // a write is on its way: two at a time could arrive in the wrong order
	recorded atomic.Uint64 // index of the entry that was recorded last; 0: unknown
}

// ledgerKey is the key of a node's record.
func (r Root) ledgerKey(deployment, node string) string {
	return r.Prefix(deployment) + "ledger/" + node
}

// Deployments returns the names of the deployments with keys in an etcd under this root, sorted.
func (r Root) Deployments(ctx context.Context, client *clientv3.Client) (names []string, err error) {
	root := strings.TrimSuffix(r.Prefix(""), "/")
	end := clientv3.GetPrefixRangeEnd(root)
	for from := root; ; {
		found, err := client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, fmt.Errorf("etcdlease: list deployments: %w", err)
		}
		if len(found.Kvs) == 0 {
			return names, nil
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(string(found.Kvs[0].Key), root), "/")
		names = append(names, name)
		from = clientv3.GetPrefixRangeEnd(r.Prefix(name))
	}
}

// RecordedEntries returns the record of a node of a deployment, or those of all nodes if node is empty. Errors:
// ErrUnreadable.
func (r Root) RecordedEntries(ctx context.Context, client *clientv3.Client, deployment, node string) (entries []Entry, err error) {
	var found *clientv3.GetResponse
	if node == "" {
		found, err = client.Get(ctx, r.ledgerKey(deployment, ""), clientv3.WithPrefix())
	} else {
		found, err = client.Get(ctx, r.ledgerKey(deployment, node))
	}
	if err != nil {
		return nil, fmt.Errorf("etcdlease: read the records of the ledger: %w", err)
	}
	for _, kv := range found.Kvs {
		e, err := parseEntry(string(kv.Value))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Clear deletes all keys of a deployment. Its etcd leases end by themselves.
func (r Root) Clear(ctx context.Context, client *clientv3.Client, deployment string) error {
	if _, err := client.Delete(ctx, r.Prefix(deployment), clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("etcdlease: delete the keys of deployment %s: %w", deployment, err)
	}
	return nil
}

func (e Entry) String() string { return fmt.Sprintf("%d %d", e.Index, e.Term) }

// parseEntry parses the text of Entry.String.
func parseEntry(text string) (e Entry, err error) {
	if _, err = fmt.Sscanf(text, "%d %d", &e.Index, &e.Term); err == nil && e.String() == text {
		return e, nil
	}
	return Entry{}, fmt.Errorf("%w: record of the ledger %q", ErrUnreadable, text)
}

// begin returns the operation that records the last durable entry, and the function to call with the result of its write.
// It returns nil if that entry is recorded, or another write is on its way.
func (r *LedgerRecord) begin() (op *pb.RequestOp, done func(error)) {
	if r == nil || !r.writing.CompareAndSwap(false, true) {
		return nil, nil
	}
	e := r.Durable()
	if e.Index == r.recorded.Load() {
		r.writing.Store(false)
		return nil, nil
	}
	return put([]byte(r.Root.ledgerKey(r.Deployment, r.Node)), []byte(e.String()), 0), func(err error) {
		if err != nil {
			e.Index = 0 // it may have been written
		}
		r.recorded.Store(e.Index)
		r.writing.Store(false)
	}
}

// Write records the last durable entry, unless it is recorded or a write is on its way.
func (r *LedgerRecord) Write(ctx context.Context) error {
	op, done := r.begin()
	if op == nil {
		return nil
	}
	p := op.GetRequestPut()
	_, err := r.Client.Put(ctx, string(p.Key), string(p.Value))
	done(err)
	if err != nil {
		return fmt.Errorf("etcdlease: record the ledger: %w", err)
	}
	return nil
}
