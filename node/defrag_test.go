package node

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Members are defragmented in turn, the leader's own last, and none while another one is away unless it is full.
func TestNextTurn(t *testing.T) {
	const well, wants, full, away = "well", "wants", "full", "away"
	candidates := func(states ...string) (all []candidate) {
		for i, s := range states {
			all = append(all, candidate{node: string(rune('a' + i)), answers: s != away, wants: s == wants || s == full, full: s == full})
		}
		return all
	}
	for _, test := range []struct {
		a, b, own string
		since     time.Duration
		next      string
	}{
		{well, well, well, time.Hour, ""},
		{wants, wants, wants, turnPause, "a"},
		{well, wants, wants, turnPause, "b"},
		{well, well, wants, turnPause, "c"},
		{wants, well, well, turnPause - 1, ""},
		{wants, away, well, time.Hour, ""},
		{away, well, wants, time.Hour, ""},
		{wants, away, full, awayPause, "c"},
		{wants, away, full, awayPause - 1, ""},
		{full, full, full, turnPause, "a"},
	} {
		require.Equal(t, test.next, nextTurn(candidates(test.a, test.b, test.own), test.since), "%+v", test)
	}
}

// A turn is taken once, and is over soon.
func TestDefragTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d defragTurn
		time.Sleep(time.Hour)
		require.False(t, d.take(true))
		due, full := d.wants()
		require.True(t, due && full)
		d.give()
		require.True(t, d.take(false))
		due, _ = d.wants()
		require.False(t, due)
		require.False(t, d.take(false))
		due, full = d.wants()
		require.True(t, due && !full)
		d.give()
		time.Sleep(turnLasts + 1)
		due, _ = d.wants()
		require.False(t, due, "the member needs no turn any more")
		require.False(t, d.take(false), "the turn is over")
	})
}

// A turn is given by a POST: a GET changes nothing.
func TestDefragTurn_IsPosted(t *testing.T) {
	n := &node{}
	ask := func(method string) int {
		answer := httptest.NewRecorder()
		peerAPI{n}.handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, defragPath, http.NoBody))
		return answer.Code
	}
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodGet))
	require.False(t, n.defrag.take(false))
	require.Equal(t, http.StatusOK, ask(http.MethodPost))
	require.True(t, n.defrag.take(false))
}

// All three members of a cluster are due at the same time, and are defragmented one after the other.
func TestCluster_MembersAreDefragmentedInTurn(t *testing.T) {
	long(t)
	t.Parallel()
	inOneTerm(t, membersAreDefragmentedInTurn)
}

func membersAreDefragmentedInTurn(t *trial) {
	said := &syncBuffer{}
	c := newTestCluster(t, logTo(said), func(cfg *Config) {
		cfg.tuning.compactor.Interval, cfg.tuning.compactor.DefragMinSize = 100*time.Millisecond, 1<<20
	})
	lead := c.nodes[t.leader(c)]
	for range 60 { // free pages are most of the file after the next compaction
		_, err := lead.etcd.client.Put(t.Context(), "large", strings.Repeat("x", 100_000))
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var small sync.WaitGroup
	for _, n := range c.nodes {
		small.Go(func() {
			for ctx.Err() == nil {
				if s, err := n.etcd.client.Status(ctx, ""); err == nil && s.DbSize < 2<<20 && s.Header.Revision > 60 {
					return
				}
				n.cluster.waitChange(ctx, pollEvery)
			}
		})
	}
	c.pay(0, 0, 1)
	small.Wait()
	require.NoError(t, ctx.Err(), "a member was not defragmented: %s", said.String())
	var turns []string
	for _, m := range regexp.MustCompile(`may be defragmented" node=(\w+)`).FindAllStringSubmatch(said.String(), -1) {
		if !slices.Contains(turns, m[1]) { // a turn that was not taken is given again, and a file that is still large gets another
			turns = append(turns, m[1])
		}
	}
	require.Len(t, turns, 3, said.String())
	require.Equal(t, lead.cluster.name(), turns[2], "the leader's own comes last")
}

// logTo writes the log of all nodes to one place.
func logTo(to *syncBuffer) func(*Config) {
	return func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(to, nil)) }
}
