package node

import (
	"context"
	"fmt"
)

// group is the services of a process, those that others need first. It lives as long as all of them do; then the last
// one is told to stop, and only when it is home the one before it, so that nobody loses what it still needs.
type group struct {
	actors []*actor
	left   chan *actor // gets everybody who came home
}

// actor is one service.
type actor struct {
	name string
	stop context.CancelFunc
	err  error // set when it is home
	home bool  // guarded by being read and written by the group's owner alone
}

// newGroup makes an empty group for at most so many actors.
func newGroup(most int) *group { return &group{left: make(chan *actor, most)} }

// start starts a service. It runs until its context ends, and returns when it has put everything away; one that
// returns earlier ends the whole group.
func (g *group) start(name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &actor{name: name, stop: cancel}
	g.actors = append(g.actors, a)
	go func() {
		a.err = run(ctx)
		g.left <- a
	}()
}

// wait returns when ctx ended or a service did, and all are home: why the first one left, or what went wrong at
// stopping.
func (g *group) wait(ctx context.Context) error {
	var reason error
	select {
	case a := <-g.left:
		a.home = true
		reason = a.why()
	case <-ctx.Done():
	}
	for i := len(g.actors) - 1; i >= 0; i-- {
		g.actors[i].stop()
		for !g.actors[i].home {
			a := <-g.left
			a.home = true
			if reason == nil && a.err != nil {
				reason = fmt.Errorf("stopping %s: %w", a.name, a.err)
			}
		}
	}
	return reason
}

func (a *actor) why() error {
	if a.err == nil {
		return fmt.Errorf("%s stopped by itself", a.name)
	}
	return fmt.Errorf("%s: %w", a.name, a.err)
}
