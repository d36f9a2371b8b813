package linear

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/node"
)

func TestRun_OneNodeIsClean(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	cfg, ready, ended := node.Dev(t.TempDir(), "127.0.0.1:0"), make(chan string, 1), make(chan error, 1)
	cfg.Ready = func(r node.Ready) { ready <- r.URL }
	go func() { ended <- node.Run(ctx, cfg) }()
	url := <-ready
	var clients []*client.Client
	for range 3 {
		c, err := client.Connect(ctx, url, client.WithoutSpool())
		require.NoError(t, err)
		clients = append(clients, c)
	}
	run, end := context.WithTimeout(ctx, 3*time.Minute)
	defer end()
	var mu sync.Mutex
	var ops []Op
	seen := make(map[string]int)
	wanted := []string{"read ", "list ", "event ", "open ", "report ", "resolve ", "cancel ", "free ", "retry ", "redact ", inDoubt, expired}
	Run(run, clients, []Reader{clients[0].Flight}, 1, 15*time.Millisecond, time.Hour, func(o Op) {
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, o)
		if seen[o.Kind+" "+o.Code]++; o.Answer != nil {
			seen[o.Answer.State]++
		}
		if len(ops) > 1000 && !slices.ContainsFunc(wanted, func(what string) bool { return seen[what] == 0 }) {
			end() // a retention that is over is seen every 10 s
		}
	})
	for _, c := range clients {
		require.NoError(t, c.Close(context.Background()))
	}
	stop()
	require.NoError(t, <-ended)
	t.Log(len(ops), seen)
	require.Empty(t, Check(ops))
	require.Greater(t, len(ops), 1000)
	for _, what := range wanted {
		require.Positive(t, seen[what], what)
	}

	many := make([]Op, 0, 100_000+len(ops))
	for i := 0; len(many) < 100_000; i++ {
		for _, o := range ops {
			if o.Key += fmt.Sprint("-", i); o.Kind != Event { // the events are those of the first copy
				many = append(many, o)
			}
		}
	}
	begun := time.Now()
	require.Empty(t, Check(many)) // would not end if each operation were compared with each other
	t.Log(len(many), "operations checked in", time.Since(begun))
}
