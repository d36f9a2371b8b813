package etcdtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// T is a test, or a program that checks like one.
type T interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// Leased starts the etcd member in dir as the only member of its cluster. It returns the keys that have a lease and the claims
// that have none, each with its value, and a description of each lease. The spare one-shot sessions of the process that acted are
// not among them: it has at most eight, until it stops. No other process may use dir, and no member may join it afterwards. No
// lease ends between the member's last entry and its start.
func Leased(t T, dir string) (keys, leases []string) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.ForceNewCluster, cfg.ListenClientUrls, cfg.ListenPeerUrls = dir, "error", true, nil, nil
	member, err := embed.StartEtcd(cfg)
	require.NoError(t, err)
	defer member.Close()
	<-member.Server.ReadyNotify()
	client := v3client.New(member.Server)
	defer client.Close()
	all, err := client.Get(t.Context(), "", clientv3.WithPrefix()) // with keys only, etcd 3.7 says of no key that it has a lease
	require.NoError(t, err)
	require.NotEmpty(t, all.Kvs, "dir has the data of another etcd")
	spare := make(map[int64]bool)
	for _, kv := range all.Kvs {
		switch {
		case kv.Lease == 0 && !strings.Contains(string(kv.Key), "/k/"): // not of a session, and no claim
		case len(spare) < 8 && strings.Contains(string(kv.Key), "/s/") && strings.Contains(string(kv.Value), `"one_shot":true`) && !strings.Contains(string(kv.Value), `"owner"`):
			spare[kv.Lease] = true
		default:
			keys = append(keys, fmt.Sprintf("%s: %s", kv.Key, kv.Value))
		}
	}
	granted, err := client.Leases(t.Context())
	require.NoError(t, err)
	for _, l := range granted.Leases {
		if spare[int64(l.ID)] {
			continue
		}
		left, err := client.TimeToLive(t.Context(), l.ID)
		require.NoError(t, err)
		leases = append(leases, fmt.Sprintf("lease %x of %d s, with %d s left", l.ID, left.GrantedTTL, left.TTL))
	}
	return keys, leases
}
