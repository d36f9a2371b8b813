package node

import (
	"context"
	"fmt"
)

// group runs the services of a process. When ctx of wait ends, or a service returns, the group stops all services in
// reverse order of their start. It waits for each before it stops the next, so a service can use those started before
// it until it has returned.
//
// start and wait are called by one goroutine, which owns all fields.
type group struct {
	services []*service
	stopped  chan *service // receives each service once, after it has returned; buffered for all services
}

// service is one service.
type service struct {
	name    string
	stop    context.CancelFunc
	err     error // result of run; written before the service is sent to group.stopped
	stopped bool  // received from group.stopped
}

// newGroup returns an empty group for at most that many services.
func newGroup(most int) *group { return &group{stopped: make(chan *service, most)} }

// start starts a service in a goroutine, for which wait waits. run must return after its context has ended and it has
// released what it holds. A service that returns earlier stops the group.
func (g *group) start(name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &service{name: name, stop: cancel}
	g.services = append(g.services, a)
	go func() {
		a.err = run(ctx)
		g.stopped <- a
	}()
}

// wait waits for the end of ctx or of a service, stops all services and returns when all have returned. The error is
// that of the service that returned by itself, else the first error of a stop.
func (g *group) wait(ctx context.Context) error {
	var reason error
	select {
	case a := <-g.stopped:
		a.stopped = true
		reason = a.stopReason()
	case <-ctx.Done():
	}
	for i := len(g.services) - 1; i >= 0; i-- {
		g.services[i].stop()
		for !g.services[i].stopped {
			a := <-g.stopped
			a.stopped = true
			if reason == nil && a.err != nil {
				reason = fmt.Errorf("stopping %s: %w", a.name, a.err)
			}
		}
	}
	return reason
}

func (s *service) stopReason() error {
	if s.err == nil {
		return fmt.Errorf("%s stopped unexpectedly", s.name)
	}
	return fmt.Errorf("%s: %w", s.name, s.err)
}
