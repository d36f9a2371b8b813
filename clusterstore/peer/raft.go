package peer

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	raftPool    = 3 // idle connections per node
	raftTimeout = 10 * time.Second
)

// RaftTransport returns a new transport of raft between the nodes, and ends the one before it. The address of a server is the
// name of its node, so a voter keeps its address in raft's configuration when its host changes. The connections of raft are
// refused before the first call and after the transport was closed.
//
// The transport keeps raft's default of two append requests in flight per follower: more delays commits, because raft's batches
// get smaller.
func (p *Port) RaftTransport(logger hclog.Logger) raft.Transport {
	q := newQueue(p.founding.Self.Name)
	t := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: &raftStream{queue: q, port: p}, MaxPool: raftPool, MaxRPCsInFlight: raft.DefaultMaxRPCsInFlight, Timeout: raftTimeout, Logger: logger,
	})
	p.mu.Lock()
	before, closed := p.raftTransport, p.closed
	p.raft, p.raftTransport = q, t
	p.mu.Unlock()
	if before != nil {
		before.CloseStreams()
		_ = before.Close()
	}
	if closed {
		_ = t.Close()
	}
	return transport{t}
}

// transport is raft's transport with a short time-out for the call that hands leadership over: raft takes no commands until it
// ends.
type transport struct{ *raft.NetworkTransport }

const timeoutNowTimeout = time.Second

// TimeoutNow implements raft.Transport. The call may reach the target after it has failed here; the target then stands for
// election, as it may at any time.
func (t transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, request *raft.TimeoutNowRequest, answer *raft.TimeoutNowResponse) error {
	var received raft.TimeoutNowResponse // not *answer, which the caller may reuse after a time-out
	done := make(chan error, 1)
	go func() { done <- t.NetworkTransport.TimeoutNow(id, target, request, &received) }() // ends after raftTimeout at the latest
	timer := time.NewTimer(timeoutNowTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		*answer = received
		return err
	case <-timer.C:
		return fmt.Errorf("node %s did not answer in time", target)
	}
}

// raftStream is the raft.StreamLayer of a Port.
type raftStream struct {
	*queue
	port *Port
}

// Dial implements raft.StreamLayer: the address is the name of a node.
func (s *raftStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.port.ctx, timeout)
	defer cancel()
	return s.port.dial(ctx, string(address), protoRaft)
}

// Close implements net.Listener. It is called when the transport is closed.
func (s *raftStream) Close() error {
	s.port.mu.Lock()
	if s.port.raft == s.queue {
		s.port.raft = nil
	}
	s.port.mu.Unlock()
	return s.queue.Close()
}
