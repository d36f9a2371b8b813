package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// journal records events in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) record(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, ", ")
}

// service returns a service that records the request to stop and its return as two events.
func (j *journal) service(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		j.record("%s stopping", name)
		j.record("%s stopped", name)
		return nil
	}
}

func TestGroupStopsTheLastFirstAndWaitsForIt(t *testing.T) {
	for _, test := range []struct {
		name  string
		leave error // returned by the third service; nil: the context of wait ends instead
		want  string
	}{{"canceled", nil, ""}, {"returned", errors.New("broken"), "c: broken"}} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			g, s := newGroup(8), &journal{}
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
			require.False(t, test.want == "" && err != nil, "the reason is %v", err)
			require.False(t, test.want != "" && fmt.Sprint(err) != test.want, "the reason is %v", err)
			want := "b stopping, b stopped, a stopping, a stopped"
			if test.leave == nil {
				want = "c stopping, c stopped, " + want
			}
			require.Equal(t, want, s.String(), "got  %s\nwant %s", s, want)
		})
	}
}

func TestGroupReturnsStopError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g := newGroup(8)
	g.start("a", func(ctx context.Context) error { <-ctx.Done(); return errors.New("cannot close") })
	g.start("b", func(ctx context.Context) error { <-ctx.Done(); return nil })
	err := g.wait(ctx)
	require.Equal(t, "stopping a: cannot close", fmt.Sprint(err), "got %v", err)
}

func TestGroupNamesAServiceThatStoppedByItself(t *testing.T) {
	g := newGroup(8)
	g.start("a", func(context.Context) error { return nil })
	err := g.wait(t.Context())
	require.Equal(t, "a stopped unexpectedly", fmt.Sprint(err), "got %v", err)
}
