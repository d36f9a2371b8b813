package clusterstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// maxInFlight is how many packets raft may have at once. Raft syncs those that wait together, so many do not cost more
// syncs; they keep log, state machine and callers busy at the same time. Measured: 8 is a fifth faster than 2 at 256
// callers, 16 is no faster than 8.
const maxInFlight = 8

// Beside freeInFlight packets another one is sent only when worthPacket proposals wait for it: every packet costs raft
// some thirty objects and a round of its loop, so many small ones would keep it from larger ones.
const (
	freeInFlight = 2
	worthPacket  = 16
)

// proposal is one caller's command on its way.
type proposal struct {
	command flight.Command
	data    []byte
	reply   flight.Reply // set by the state machine before done
	done    chan error   // gets one value
	packed  bool         // guarded by packer.mu: it can no longer be taken back
}

// answer is what do returns. The reply is read only where the state machine is done with it.
func (p *proposal) answer(err error) (flight.Reply, error) {
	if err != nil {
		return flight.Reply{}, err
	}
	return p.reply, nil
}

// packet is one log entry on its way.
type packet struct {
	stamp     stamp
	data      []byte
	proposals []*proposal
	settled   atomic.Bool
}

// unpacked is a packet that another process packed: nobody here waits for it.
func unpacked(at stamp, commands []flight.Command) *packet {
	p := &packet{stamp: at, proposals: make([]*proposal, len(commands))}
	for i, c := range commands {
		p.proposals[i] = &proposal{command: c}
	}
	return p
}

// deliver answers everybody in the packet: its effects are in the state.
func (p *packet) deliver() { p.settle(nil) }

// settle answers everybody once; who comes second is too late.
func (p *packet) settle(err error) {
	if !p.settled.CompareAndSwap(false, true) {
		return
	}
	for _, one := range p.proposals {
		one.done <- err
	}
}

// pendingPackets are the packets that this process gave to raft. The state machine finds in it what it would have to
// decode otherwise: raft hands the leader's own entries over with the very bytes that were proposed.
type pendingPackets struct {
	mu      sync.Mutex
	packets map[*byte]*packet
}

func (p *pendingPackets) add(one *packet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.packets == nil {
		p.packets = make(map[*byte]*packet)
	}
	p.packets[&one.data[0]] = one
}

// take gives the packet with these very bytes, if this process proposed it and nobody was answered yet.
func (p *pendingPackets) take(data []byte) *packet {
	if len(data) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.packets[&data[0]]
	if one != nil {
		delete(p.packets, &data[0])
	}
	return one
}

// abandon answers for all packets that raft will not answer for any more. They may be in the log.
func (p *pendingPackets) abandon(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.packets {
		one.settle(why)
	}
	clear(p.packets)
}

// packer is the group commit: what callers propose while earlier packets are on their way goes into the next packet,
// which costs one write and one sync, however many commands it holds.
type packer struct {
	raft    *raft.Raft
	now     func() stamp
	pending *pendingPackets

	mu       sync.Mutex
	queue    []*proposal
	inFlight int
	closed   bool
	drivers  sync.WaitGroup
}

// do proposes one command and waits for what becomes of it. Errors have the classes of errors.go.
func (k *packer) do(ctx context.Context, c flight.Command, data []byte) (flight.Reply, error) {
	p := &proposal{command: c, data: data, done: make(chan error, 1)}
	if err := k.enqueue(p); err != nil {
		return flight.Reply{}, err
	}
	return k.await(ctx, p)
}

// await waits for a proposal that was enqueued.
func (k *packer) await(ctx context.Context, p *proposal) (flight.Reply, error) {
	select {
	case err := <-p.done:
		return p.answer(err)
	case <-ctx.Done():
	}
	if k.takeBack(p) {
		return flight.Reply{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	select {
	case err := <-p.done: // it came at the same moment
		return p.answer(err)
	default:
		return flight.Reply{}, &AmbiguousError{Cause: context.Cause(ctx)}
	}
}

func (k *packer) enqueue(p *proposal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.queue = append(k.queue, p)
	if k.inFlight < freeInFlight || k.inFlight < maxInFlight && len(k.queue) >= worthPacket {
		k.inFlight++
		k.drivers.Add(1)
		go k.drive()
	}
	return nil
}

// takeBack removes a proposal that has not left this process. False: it has.
func (k *packer) takeBack(p *proposal) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.packed {
		return false
	}
	for i, one := range k.queue {
		if one == p {
			k.queue = append(k.queue[:i:i], k.queue[i+1:]...)
			return true
		}
	}
	return false
}

// drive carries packets to raft as long as there is something to pack. Raft answers every packet: with what happened
// to it, or with an error when leadership or raft itself ends.
func (k *packer) drive() {
	defer k.drivers.Done()
	for {
		p := k.pack()
		if p == nil {
			return
		}
		k.pending.add(p)
		err := k.raft.ApplyLog(raft.Log{Data: p.data}, 0).Error()
		k.pending.take(p.data)
		p.settle(verdict(err)) // without an error the state machine has answered already
	}
}

// pack takes as much from the queue as an entry may hold; nil ends the driver.
func (k *packer) pack() *packet {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, size := 0, entryFixed
	for n < len(k.queue) {
		more := commandPrefix + len(k.queue[n].data)
		if n > 0 && size+more > maxEntry {
			break
		}
		size += more
		n++
	}
	if n == 0 {
		k.inFlight--
		return nil
	}
	p := &packet{stamp: k.now(), proposals: k.queue[:n:n]}
	k.queue = k.queue[n:]
	p.data = appendHead(make([]byte, 0, size), p.stamp)
	for _, one := range p.proposals {
		one.packed = true
		p.data = appendCommand(p.data, one.data)
	}
	return p
}

// close refuses new proposals, lets those in flight end, and waits for them until ctx ends.
func (k *packer) close(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	drained := make(chan struct{})
	go func() {
		k.drivers.Wait()
		close(drained)
	}()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("clusterstore: close: proposals are still in flight: %w", context.Cause(ctx))
	}
}
