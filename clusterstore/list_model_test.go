package clusterstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

// listModel is the reference for List: it reads every flight one by one.
type listModel struct {
	t        *rapid.T
	s        *Store
	keys     []flight.Key
	revision int64
}

func newListModel(t *rapid.T, s *Store) *listModel {
	b := &listModel{t: t, s: s}
	for _, name := range []string{"test/charge/a", "test/charge/b", "test/mail/a", "other/charge/a"} {
		for n := range 6 {
			b.keys = append(b.keys, flight.MustKey(fmt.Sprintf("%s-%d", name, n)))
		}
	}
	return b
}

func (m *listModel) propose(c flight.Command) flight.Reply {
	reply, err := m.s.Propose(context.Background(), c)
	require.NoError(m.t, err)
	return reply
}

// write changes a random flight.
func (m *listModel) write() {
	key := rapid.SampledFrom(m.keys).Draw(m.t, "key")
	f, err := m.s.Flight(key.FlightID())
	require.NoError(m.t, err)
	var generation uint32
	if f != nil {
		generation = f.Generation
	}
	m.revision++
	switch rapid.IntRange(0, 6).Draw(m.t, "deed") {
	case 0, 1:
		m.propose(&flight.Open{Key: key, Submission: flight.Submission{Policy: flight.Policy{Retention: time.Minute}},
			Session: sessionOf(m.s, "s"), Nonce: nonce(int(m.revision)),
			NotAfter: m.s.Now().Add(10 * time.Second), StoreEpoch: m.s.Header().StoreEpoch})
	case 2, 3:
		if f != nil && f.OpenAttempt() != nil {
			m.propose(&flight.Report{Key: key, Generation: generation, Token: f.OpenAttempt().Token(),
				Outcome: rapid.SampledFrom([]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeNotDone, flight.OutcomeUnknown}).Draw(m.t, "outcome")})
		}
	case 4:
		m.propose(&flight.Cancel{Key: key, Generation: generation})
	case 5:
		m.propose(rapid.SampledFrom([]flight.Command{&flight.FreeKey{Key: key, Generation: generation}, &flight.Retry{Key: key, Generation: generation},
			&flight.CountDuplicates{Key: key, ID: flight.CountID{Number: uint64(m.revision)}, Stats: flight.DuplicateStats{Count: 1}}}).Draw(m.t, "verb"))
	case 6:
		time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 70 * time.Second}).Draw(m.t, "pause"))
		_, err := m.s.Expire(context.Background(), rapid.IntRange(1, 3).Draw(m.t, "expire"))
		require.NoError(m.t, err)
	}
}

// matching returns the flights that match the query, newest first.
func (m *listModel) matching(q flight.Query) (fit []*flight.Flight) {
	for _, key := range m.keys {
		f, err := m.s.Flight(key.FlightID())
		require.NoError(m.t, err)
		switch {
		case f == nil, f.State == flight.StateAbsent, f.State == flight.StateExpired, f.CreatedAt < q.Since,
			len(q.States) > 0 && !slices.Contains(q.States, f.State),
			q.Namespace != "" && key.Namespace() != q.Namespace, q.Name != "" && key.Name() != q.Name,
			!strings.HasPrefix(key.String(), q.Prefix):
			continue
		}
		fit = append(fit, f)
	}
	slices.SortFunc(fit, flight.NewestFirst)
	return fit
}

func (m *listModel) query() flight.Query {
	states := []flight.State{flight.StateReady, flight.StateRunning, flight.StateInDoubt, flight.StateSucceeded, flight.StateFailed, flight.StateCancelled}
	q := flight.Query{
		States:    rapid.SliceOfNDistinct(rapid.SampledFrom(states), 0, 3, func(s flight.State) flight.State { return s }).Draw(m.t, "states"),
		Namespace: rapid.SampledFrom([]string{"", "", "test", "other", "none"}).Draw(m.t, "namespace"),
		Name:      rapid.SampledFrom([]string{"", "", "charge", "mail"}).Draw(m.t, "name"),
		Prefix:    rapid.SampledFrom([]string{"", "", "test/", "test/charge/a", "test/charge/b-3"}).Draw(m.t, "prefix"),
		Limit:     rapid.IntRange(1, 6).Draw(m.t, "limit"),
	}
	if rapid.Bool().Draw(m.t, "since") {
		q.Since = m.s.Now().Add(-rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(m.t, "ago"))
	}
	return q
}

func idsOf(flights []*flight.Flight) (ids []flight.ID) {
	for _, f := range flights {
		ids = append(ids, f.ID)
	}
	return ids
}

// Without writes, the pages of a list together are the matching flights, in order. With writes between the pages,
// each flight that matches all the time is on exactly one page, none is on two, and the order and the contents are
// correct.
func TestListAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failed any // rapid fails by a panic, which it must see outside of the bubble
		defer func() {
			if failed != nil {
				panic(failed)
			}
		}()
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			s, err := Open(context.Background(), memConfig(vfs.NewMem()))
			require.NoError(rt, err)
			defer func() { require.NoError(rt, s.Close(context.Background())) }()
			b := newListModel(rt, s)
			for range rapid.IntRange(5, 60).Draw(rt, "before") {
				b.write()
			}
			q := b.query()
			require.Equal(rt, idsOf(b.matching(q)), b.walk(q, func() {}))
			always := b.matching(q)
			seen := b.walk(q, func() {
				for range rapid.IntRange(0, 4).Draw(rt, "between") {
					b.write()
				}
				now := b.matching(q)
				always = slices.DeleteFunc(always, func(f *flight.Flight) bool {
					return !slices.ContainsFunc(now, func(g *flight.Flight) bool { return g.ID == f.ID && g.CreatedAt == f.CreatedAt })
				})
			})
			for _, f := range always {
				require.Contains(rt, seen, f.ID, "%s fits all the time and is on no page", f.Key)
			}
		})
	})
}

// walk reads the pages of a list and calls between after each.
func (m *listModel) walk(q flight.Query, between func()) (seen []flight.ID) {
	var last *flight.Flight
	for {
		page, err := m.s.List(q)
		require.NoError(m.t, err)
		require.LessOrEqual(m.t, len(page.Flights), q.Limit)
		fit := m.matching(q)
		for _, f := range page.Flights {
			require.NotContains(m.t, seen, f.ID, "%s is on two pages", f.Key)
			require.True(m.t, last == nil || flight.NewestFirst(last, f) < 0, "out of order")
			require.Contains(m.t, idsOf(fit), f.ID, "%s was not asked for", f.Key)
			seen, last = append(seen, f.ID), f
		}
		if !page.More {
			return seen
		}
		require.NotEqual(m.t, q.After, page.Next, "a page must advance the cursor")
		q.After = page.Next
		between()
	}
}
