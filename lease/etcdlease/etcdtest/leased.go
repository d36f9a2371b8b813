package etcdtest

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// Leased starts the member whose data is in dir as one alone, and returns the keys that have a lease, and the number of leases. No
// other process may use dir, and no member may join it afterwards. No lease ends between the member's last entry and its start.
func Leased(t testing.TB, dir string) (keys []string, leases int) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.ForceNewCluster, cfg.ListenClientUrls, cfg.ListenPeerUrls = dir, "error", true, nil, nil
	member, err := embed.StartEtcd(cfg)
	require.NoError(t, err)
	defer member.Close()
	<-member.Server.ReadyNotify()
	client := v3client.New(member.Server)
	defer client.Close()
	all, err := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.NotEmpty(t, all.Kvs, "the data is another one's")
	for _, kv := range all.Kvs {
		if kv.Lease != 0 {
			keys = append(keys, string(kv.Key))
		}
	}
	granted, err := client.Leases(t.Context())
	require.NoError(t, err)
	return keys, len(granted.Leases)
}
