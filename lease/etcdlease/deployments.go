package etcdlease

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Deployments names those that keep keys in an etcd below their default prefixes, in the order of their names.
func Deployments(ctx context.Context, client *clientv3.Client) (names []string, err error) {
	root := DefaultPrefix("")
	root = root[:len(root)-1]
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
