package etcdlease

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Deployments returns the names of the deployments with keys in an etcd under their default prefixes, sorted.
func Deployments(ctx context.Context, client *clientv3.Client) (names []string, err error) {
	root := strings.TrimSuffix(DefaultPrefix(""), "/")
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
		from = clientv3.GetPrefixRangeEnd(DefaultPrefix(name))
	}
}

// LedgerIndex returns the index of a ledger entry that was recorded by SetLedgerIndex; 0 if none was. A ledger that
// ends before it is older than it was.
func LedgerIndex(ctx context.Context, client *clientv3.Client, deployment string) (uint64, error) {
	found, err := client.Get(ctx, ledgerKey(deployment))
	if err != nil {
		return 0, fmt.Errorf("etcdlease: read the ledger index: %w", err)
	}
	if len(found.Kvs) == 0 {
		return 0, nil
	}
	index, err := strconv.ParseUint(string(found.Kvs[0].Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: ledger index: %w", ErrUnreadable, err)
	}
	return index, nil
}

// SetLedgerIndex records the index of a ledger entry. The entry must be durable in the ledger.
func SetLedgerIndex(ctx context.Context, client *clientv3.Client, deployment string, index uint64) error {
	if _, err := client.Put(ctx, ledgerKey(deployment), strconv.FormatUint(index, 10)); err != nil {
		return fmt.Errorf("etcdlease: write the ledger index: %w", err)
	}
	return nil
}

func ledgerKey(deployment string) string { return DefaultPrefix(deployment) + "ledger" }
