//go:build deep

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/proctest"
)

// buildNewer builds flightd as it will be with another feature level.
func buildNewer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs("../../flight/level.go")
	require.NoError(t, err)
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	const newest = "MaxLevel = LevelBase"
	require.Contains(t, string(text), newest)
	changed := filepath.Join(dir, "level.go")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), newest, newest+" + 1", 1)), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	require.NoError(t, err)
	file, newer := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "flightd")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	out, err := exec.Command("go", "build", "-overlay", file, "-o", newer, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return newer
}

// Three nodes of this build are replaced by one with another feature level in turn, under load. The level rises with the last one, and
// callers that retry see no error. Then this build does not start on the data any more.
func TestDevNodes_UpgradeInTurn(t *testing.T) {
	newer := buildNewer(t)
	c := &trio{t: t, data: filepath.Join(t.TempDir(), "data"), listen: proctest.Address(t), state: t.TempDir(), log: new(lockedBuffer)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	d, err := devNodesOf(&cli.App{Terminal: cli.Terminal{Env: func(string) string { return "" }}}, c.data, c.listen, 3)
	require.NoError(t, err)
	require.NoError(t, d.prepare())
	var nodes [4]*exec.Cmd
	start := func(binary string, n int) {
		nodes[n] = exec.Command(binary, c.args("--node", strconv.Itoa(n))...)
		nodes[n].Stderr = c.log
		require.NoError(t, nodes[n].Start())
	}
	stop := func(n int) {
		_ = nodes[n].Process.Signal(syscall.SIGTERM)
		_ = nodes[n].Wait()
	}
	for n := 1; n <= 3; n++ {
		c.urls = append(c.urls, "http://"+d.address(n))
		start(program, n)
		t.Cleanup(func() { stop(n) })
	}
	c.whole()
	level := func() uint32 { // 0: nobody answers
		for _, url := range c.urls {
			var v wire.Version
			if answer, err := http.Get(url + "/version"); err == nil {
				err = json.NewDecoder(answer.Body).Decode(&v)
				_ = answer.Body.Close()
				if err == nil && v.FeatureLevel > 0 {
					return v.FeatureLevel
				}
			}
		}
		return 0
	}
	Eventually(t, "a node answers", func() bool { return level() == flight.MaxLevel })

	ctx, end := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var paid atomic.Int64
	for caller := range 6 {
		callers.Go(func() {
			by, err := client.Connect(ctx, strings.Join(c.urls, ","), client.WithSpool(t.TempDir()))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = by.Close(context.WithoutCancel(ctx)) }()
			for n := 0; ctx.Err() == nil; n++ {
				effects := 0
				call := effect.Call{Key: flight.MustKey(fmt.Sprintf("default/pay/%d-%d", caller, n))}
				_, err := by.Do(context.WithoutCancel(ctx), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
					effects++
					return effect.Answer{}, nil
				})
				if err != nil || effects != 1 {
					t.Errorf("%v: %d effects, %v", call.Key, effects, err)
					return
				}
				paid.Add(1)
			}
		})
	}
	for n := 1; n <= 3; n++ {
		Eventually(t, "a node answers", func() bool { return level() > 0 })
		require.LessOrEqual(t, level(), flight.MaxLevel, "before node %d is upgraded", n)
		before := paid.Load()
		Eventually(t, "the callers go on", func() bool { return paid.Load() > before+100 })
		stop(n)
		start(newer, n)
		c.whole()
	}
	Eventually(t, "the next level is reached", func() bool { return level() == flight.MaxLevel+1 })
	end()
	callers.Wait()
	stop(3)
	start(program, 3)
	var exit *exec.ExitError
	require.ErrorAs(t, nodes[3].Wait(), &exit)
	require.Equal(t, cli.ExitConfig, exit.ExitCode())
	t.Logf("%d effects while the nodes were upgraded", paid.Load())
}
