package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

const (
	callers = 24
	// callTimeout is the wait of a retry. It is longer than the time to live of an earlier caller's session.
	callTimeout = 50 * time.Second
	// recheckEvery selects the acknowledged keys of a round that are checked again after the next round: every 20th.
	recheckEvery = 20
)

// checker runs callers with new keys, counts the effects that really happened, and checks the keys after a power cut.
type checker struct {
	client *client.Client
	name   uint64 // makes the keys of this run new

	mu       sync.Mutex  // guards the fields below
	keys     []*keyState // since the last check
	keysUsed int
	recheck  []*keyState // keys of the previous round
}

// keyState is one key, its effects, and the result of its first caller.
type keyState struct {
	key          flight.Key
	effects      atomic.Int32 // number of effects that really happened
	acknowledged bool
	receipt      string
	err          error
}

func newChecker(c *client.Client, name uint64) *checker { return &checker{client: c, name: name} }

// newKey returns a key that was never used.
func (c *checker) newKey() *keyState {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keysUsed++
	k := &keyState{key: flight.MustKey(fmt.Sprintf("power/cut-%x/%d", c.name, c.keysUsed))}
	c.keys = append(c.keys, k)
	return k
}

// do calls flightd for the key and returns the receipt's body.
func (c *checker) do(ctx context.Context, k *keyState) (string, error) {
	input := []byte(`{"key":"` + k.key.String() + `"}`)
	result, err := c.client.Do(ctx, effect.Call{Key: k.key, Wait: callTimeout, Submission: flight.Submission{
		Fingerprint: flight.FingerprintBytes(input), Input: flight.NewBlob("application/json", input, flight.MaxInput),
	}}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		body := fmt.Sprintf("effect %d of %s at %d", k.effects.Add(1), k.key, time.Now().UnixNano())
		return effect.Answer{ExternalID: "x", ContentType: "text/plain", Body: []byte(body)}, nil
	})
	return string(result.Answer.Body), err
}

// callFirst is the first call of a key. It stores the result.
func (c *checker) callFirst(ctx context.Context, k *keyState) {
	k.receipt, k.err = c.do(ctx, k)
	k.acknowledged = k.err == nil
}

// startCallers starts the callers. The returned function cancels them, waits for them, and returns all keys to check.
func (c *checker) startCallers(ctx context.Context) (stop func() []*keyState) {
	ctx, cancel := context.WithCancel(ctx)
	stopping := make(chan struct{})
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for {
				select {
				case <-stopping:
					return
				default:
					c.callFirst(ctx, c.newKey())
				}
			}
		})
	}
	return func() []*keyState {
		close(stopping)
		cancel()
		group.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		all := append(c.keys, c.recheck...)
		c.keys, c.recheck = nil, nil
		return all
	}
}

// result counts the outcomes of the checks after a power cut.
type result struct {
	kept, completed, inDoubt, unanswered, broken int
}

func (r result) String() string {
	return fmt.Sprintf("%d acknowledged and unchanged, %d executed or replayed now, %d in doubt, %d without an answer, %d promises broken",
		r.kept, r.completed, r.inDoubt, r.unanswered, r.broken)
}

// check calls flightd once more for every key, and compares.
func (c *checker) check(ctx context.Context, all []*keyState) (v result) {
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, callers)
	for _, k := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, callTimeout+10*time.Second)
			defer cancel()
			receipt, err := c.do(ctx, k)
			mu.Lock()
			defer mu.Unlock()
			v.add(k, receipt, err)
		})
	}
	group.Wait()
	for i, k := range all {
		if k.acknowledged && i%recheckEvery == 0 {
			c.recheck = append(c.recheck, k)
		}
	}
	return v
}

func (r *result) add(k *keyState, receipt string, err error) {
	var doubt *effect.InDoubt
	switch effects := k.effects.Load(); {
	case effects > 1:
		r.broken++
		fmt.Printf("BROKEN %s: the effect happened %d times\n", k.key, effects)
	case k.acknowledged && (err != nil || receipt != k.receipt):
		r.broken++
		fmt.Printf("BROKEN %s: the acknowledged receipt is %q, the receipt now is %q (%v)\n", k.key, k.receipt, receipt, err)
	case k.acknowledged:
		r.kept++
	case err == nil && effects != 1:
		r.broken++
		fmt.Printf("BROKEN %s: receipt %q, but the effect happened %d times\n", k.key, receipt, effects)
	case err == nil:
		r.completed++
		k.acknowledged, k.receipt = true, receipt
	case errors.As(err, &doubt):
		r.inDoubt++
	default:
		r.unanswered++
		fmt.Printf("%s: %v\n", k.key, err)
	}
}
