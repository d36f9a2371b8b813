package clusterstore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// wholeFlight returns the commands of a flight from its submission to its receipt. Each is rejected without those before it.
func wholeFlight(s *Store, n int) []flight.Command {
	key := testKey(n)
	open := openOf(s, key, n)
	token := flight.Token{StoreEpoch: s.Header().StoreEpoch, Number: 1}
	return []flight.Command{&flight.Submit{Key: key, Submission: open.Submission, Queue: &flight.Queue{}}, open, reportOf(key, token, "x")}
}

// Commands that are proposed together are applied in their order, whatever is proposed beside them.
func TestProposeTogether(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			for n := range 100 {
				replies, err := s.ProposeTogether(context.Background(), wholeFlight(s, 1000*caller+n))
				if err != nil || len(replies) != 3 || replies[1].Decision != flight.DecisionProceed || replies[2].Decision != flight.DecisionAccepted {
					t.Errorf("%+v, %v", replies, err)
				}
			}
		})
	}
	all.Wait()
	large := flight.NewBlob("text/plain", make([]byte, maxEntry/2), flight.MaxInput)
	_, err := s.ProposeTogether(context.Background(), []flight.Command{
		&flight.Submit{Key: testKey(1), Queue: &flight.Queue{}, Submission: flight.Submission{Input: large}},
		&flight.Submit{Key: testKey(2), Queue: &flight.Queue{}, Submission: flight.Submission{Input: large}}})
	require.ErrorIs(t, err, ErrTooLarge)
}

// Commands that are proposed together and given up are all applied, or none of them is. None is proposed again: another one may have taken the
// number of the attempt that they count on.
func TestProposeTogether_GivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, z := memConfig(vfs.NewMem()), new(applyBlocker)
		cfg.Events = z.events()
		s := openStore(t, cfg)
		thaw := sync.OnceFunc(z.block(t, s))
		defer thaw()
		before := s.raft.LastIndex()
		giveUp := func(n int) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := s.ProposeTogether(ctx, wholeFlight(s, n))
			return err
		}
		require.ErrorIs(t, giveUp(1), effect.ErrAmbiguous, "raft has them")
		queued := giveUp(2)
		require.ErrorIs(t, queued, ErrUnavailable, "definite: none of them has left this process")
		require.False(t, errors.Is(queued, effect.ErrAmbiguous))
		thaw()
		synctest.Wait()
		require.Equal(t, before+1, s.raft.LastIndex(), "none was proposed again")
		f, err := s.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		f, err = s.Flight(testKey(2).FlightID())
		require.NoError(t, err)
		require.Nil(t, f)
	})
}
