package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// story is what happened, in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, ", ")
}

// service is home only some time after it was told to stop.
func (s *story) service(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		s.tell("%s told", name)
		s.tell("%s home", name)
		return nil
	}
}

func TestGroupStopsTheLastFirstAndWaitsForIt(t *testing.T) {
	for _, test := range []struct {
		name  string
		leave error // what the third service leaves with; nil: the group's context ends
		want  string
	}{{"told", nil, ""}, {"left", errors.New("broken"), "c: broken"}} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			g, s := newGroup(8), &story{}
			g.start("a", s.service("a"))
			g.start("b", s.service("b"))
			g.start("c", func(ctx context.Context) error {
				if test.leave != nil {
					return test.leave
				}
				return s.service("c")(ctx)
			})
			if test.leave == nil {
				cancel()
			}
			defer cancel()
			err := g.wait(ctx)
			if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && got != test.want {
				t.Errorf("the reason is %v", err)
			}
			want := "b told, b home, a told, a home"
			if test.leave == nil {
				want = "c told, c home, " + want
			}
			if s.String() != want {
				t.Errorf("got  %s\nwant %s", s, want)
			}
		})
	}
}

func TestGroupTellsWhatWentWrongAtStopping(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := newGroup(8)
	g.start("a", func(ctx context.Context) error { <-ctx.Done(); return errors.New("cannot close") })
	g.start("b", func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err := g.wait(ctx); fmt.Sprint(err) != "stopping a: cannot close" {
		t.Errorf("got %v", err)
	}
}

func TestGroupNamesAServiceThatStoppedByItself(t *testing.T) {
	g := newGroup(8)
	g.start("a", func(context.Context) error { return nil })
	if err := g.wait(t.Context()); fmt.Sprint(err) != "a stopped by itself" {
		t.Errorf("got %v", err)
	}
}
