package etcdlease

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// fakeMember is a member of an etcd that has, or has not, a leader. It counts the requests that reach it.
type fakeMember struct {
	pb.UnimplementedLeaseServer
	pb.UnimplementedKVServer
	address string
	leads   atomic.Bool
	asked   atomic.Int64
}

// answer is the error of a request, as of etcd's interceptors: a member without a leader rejects a request that demands one, and
// lets others wait.
func (m *fakeMember) answer(ctx context.Context) error {
	m.asked.Add(1)
	if m.leads.Load() {
		return nil
	}
	if md, _ := metadata.FromIncomingContext(ctx); len(md[rpctypes.MetadataRequireLeaderKey]) == 0 {
		<-ctx.Done()
	}
	return rpctypes.ErrGRPCNoLeader
}

func (m *fakeMember) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	if err := m.answer(stream.Context()); err != nil {
		return err
	}
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	return stream.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: 15})
}

func (m *fakeMember) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}, m.answer(ctx)
}

func startFakeMember(t *testing.T) *fakeMember {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &fakeMember{address: "http://" + l.Addr().String()}
	server, served := grpc.NewServer(), make(chan error, 1)
	pb.RegisterLeaseServer(server, m)
	pb.RegisterKVServer(server, m)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return m
}

// A member without a leader does nothing: renewals and transactions go to each member once, without a pause, and not more. As soon
// as one member has a leader, they succeed.
func TestNoLeaderIsAskedOnce(t *testing.T) {
	t.Parallel()
	members := []*fakeMember{startFakeMember(t), startFakeMember(t), startFakeMember(t)}
	var urls []string
	for _, m := range members {
		urls = append(urls, m.address)
	}
	client, err := Dial(clientv3.Config{Endpoints: urls})
	require.NoError(t, err)
	defer client.Close()
	s := newStore(client, nil, "p/", nil)
	requests := map[string]func(context.Context) error{
		"renewal": func(ctx context.Context) error {
			_, err := s.Renew(ctx, 7)
			return err
		},
		"transaction": func(ctx context.Context) error {
			_, err := s.server.Txn(ctx, &pb.TxnRequest{})
			return err
		},
	}
	for name, send := range requests {
		asked := func() (sum int64) {
			for _, m := range members {
				sum += m.asked.Load()
			}
			return sum
		}
		for range 20 {
			before := asked()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := send(ctx)
			cancel()
			require.ErrorIs(t, err, rpctypes.ErrNoLeader, "%s: a member that lets it wait ends with the context", name)
			require.EqualValues(t, 3, asked()-before, "%s", name)
		}
		require.Eventually(t, func() bool { // until all connections are open: the three requests could meet one member
			require.ErrorIs(t, send(t.Context()), rpctypes.ErrNoLeader, name)
			return !slices.ContainsFunc(members, func(m *fakeMember) bool { return m.asked.Load() == 0 })
		}, time.Minute, time.Millisecond, name)
		members[1].leads.Store(true)
		for range 20 {
			require.NoError(t, send(t.Context()), name)
		}
		members[1].leads.Store(false)
	}
}
