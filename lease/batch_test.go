package lease

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Operations of one key are committed one at a time, in the order in which they were queued. A batch does not exceed
// its size. Close commits all queued operations.
func TestBatcherKeepsTheOrderOfAKey(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const lanes, size, ops, keys = 3, 10, 2000, 7
		source, pauses := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		inFlight, last, done := map[string]bool{}, map[string]int64{}, 0
		b := newBatcher(lanes, size, func(batch []*op) {
			mu.Lock()
			assert.LessOrEqual(t, len(batch), size)
			for _, o := range batch {
				assert.False(t, inFlight[o.Key], "%s is in flight twice", o.Key)
				assert.Greater(t, o.ModRevision, last[o.Key], "%s was overtaken", o.Key)
				inFlight[o.Key], last[o.Key] = true, o.ModRevision
			}
			pause := time.Duration(pauses.IntN(3)) * time.Millisecond
			mu.Unlock()
			time.Sleep(pause)
			mu.Lock()
			defer mu.Unlock()
			for _, o := range batch {
				delete(inFlight, o.Key)
				done++
				if o.done != nil {
					o.done <- nil
				}
			}
		})
		var waited []*op
		for i := range ops {
			o := &op{Op: Op{Kind: OpRemove, Key: fmt.Sprint(source.IntN(keys)), ModRevision: int64(i + 1)}}
			if source.IntN(2) == 0 {
				o.done = make(chan error, 1)
				waited = append(waited, o)
			}
			require.True(t, b.enqueue(o))
			if source.IntN(50) == 0 {
				time.Sleep(time.Duration(source.IntN(10)) * time.Millisecond)
			}
		}
		for _, o := range waited {
			<-o.done
		}
		b.close()
		require.Equal(t, ops, done)
		require.False(t, b.enqueue(&op{}))
		require.Empty(t, b.inFlightKeys)
	})
}
