package etcdlease

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd and the ledger know little of each other. What is here lets each be a witness of what the other one was.

// Deployments names those that keep keys in an etcd below their default prefixes, in the order of their names.
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

// LedgerIndex is how far a deployment's ledger is known to have been: the index of an entry that it had; 0: nobody said.
func LedgerIndex(ctx context.Context, client *clientv3.Client, deployment string) (uint64, error) {
	found, err := client.Get(ctx, ledgerKey(deployment))
	if err != nil {
		return 0, fmt.Errorf("etcdlease: read the ledger's index: %w", err)
	}
	if len(found.Kvs) == 0 {
		return 0, nil
	}
	index, err := strconv.ParseUint(string(found.Kvs[0].Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: the ledger's index: %w", ErrUnreadable, err)
	}
	return index, nil
}

// SetLedgerIndex says how far the ledger is. The entry with this index must be durable there.
func SetLedgerIndex(ctx context.Context, client *clientv3.Client, deployment string, index uint64) error {
	if _, err := client.Put(ctx, ledgerKey(deployment), strconv.FormatUint(index, 10)); err != nil {
		return fmt.Errorf("etcdlease: write the ledger's index: %w", err)
	}
	return nil
}

func ledgerKey(deployment string) string { return DefaultPrefix(deployment) + "ledger" }
