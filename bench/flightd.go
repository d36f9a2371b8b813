package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/node"
)

// replayKeys is the number of keys from which replays are drawn.
const replayKeys = 100_000

// flightd is a node in this process, and an HTTP client of it.
type flightd struct {
	local  effect.Doer
	remote *client.Client
	stop   context.CancelFunc
	over   chan error
	stored []flight.Key
}

func openFlightd(ctx context.Context, dir string) (*flightd, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &flightd{stop: stop, over: make(chan error, 1)}
	ready := make(chan node.Ready, 1)
	go func() { // close waits for it
		f.over <- node.Run(ctx, node.Config{Data: filepath.Join(dir, "flightd"), Listen: "127.0.0.1:0", Ready: func(r node.Ready) { ready <- r }})
	}()
	select {
	case r := <-ready:
		f.local = r.Executor
		var err error
		if f.remote, err = client.Connect(ctx, r.URL); err != nil {
			f.close()
			return nil, err
		}
		return f, nil
	case err := <-f.over:
		stop()
		return nil, errors.Join(errors.New("the node did not start"), err)
	}
}

func (f *flightd) close() {
	if f.remote != nil {
		_ = f.remote.Close(context.Background())
	}
	f.stop()
	<-f.over
}

var emptyAnswer = effect.Answer{ExternalID: "ext-1", ContentType: "application/json", Body: []byte(`{"ok":true}`)}

func nothingHappens(context.Context, *effect.Attempt) (effect.Answer, error) { return emptyAnswer, nil }

// call returns a call for the key with a small input.
func call(key flight.Key) effect.Call {
	input := []byte(`{"amount":4200,"currency":"EUR"}`)
	return effect.Call{Key: key, Submission: flight.Submission{
		Fingerprint: flight.FingerprintBytes(input),
		Input:       flight.NewBlob("application/json", input, flight.MaxInput),
	}}
}

// newKeys returns a function that executes a flight with a new key.
func (f *flightd) fresh(doer effect.Doer) func(context.Context, uint64) error {
	return func(ctx context.Context, n uint64) error {
		_, err := doer.Do(ctx, call(flight.MustKey(fmt.Sprintf("bench/charge/order-%d", n))), nothingHappens)
		return err
	}
}

// replay returns a function that replays a random stored flight. Its first call stores the flights.
func (f *flightd) replay(doer effect.Doer) func(context.Context, uint64) error {
	var once sync.Once
	var failed error
	return func(ctx context.Context, _ uint64) error {
		once.Do(func() { failed = f.store(ctx) })
		if failed != nil {
			return failed
		}
		result, err := doer.Do(ctx, call(f.stored[rand.IntN(len(f.stored))]), nothingHappens)
		if err == nil && result.Source != effect.Replayed {
			return fmt.Errorf("replay: the source is %s", result.Source)
		}
		return err
	}
}

// storeReplayKeys executes the flights that replays are drawn from.
func (f *flightd) store(ctx context.Context) error {
	if f.stored != nil {
		return nil
	}
	keys := make([]flight.Key, replayKeys)
	var wg sync.WaitGroup
	const writers = 256
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := w; i < replayKeys && errs[w] == nil; i += writers {
				keys[i] = flight.MustKey(fmt.Sprintf("bench/stored/order-%d", i))
				_, errs[w] = f.local.Do(ctx, call(keys[i]), nothingHappens)
			}
		})
	}
	wg.Wait()
	f.stored = keys
	return errors.Join(errs...)
}

// workloads returns the selected workloads in the table's order, and a function that closes them.
func line(ctx context.Context, o options, dir string) (all []contestant, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	if o.url != "" {
		return guestLine(ctx, o.url)
	}
	raw, err := openRaw(ctx, filepath.Join(dir, "raw"))
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, raw.close)
	fd, err := openFlightd(ctx, dir)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	closers = append(closers, fd.close)
	rooms, err := openParts(ctx, filepath.Join(dir, "parts"), raw)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	closers = append([]func(){rooms.close}, closers...)
	nothing, err := openEmpty()
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	closers = append(closers, nothing.close)
	all = []contestant{
		{name: rawUnbatched, once: raw.unbatched, tidy: raw.tidy},
		{name: rawBatched, once: raw.batched, tidy: raw.tidy},
		{name: "claims alone", once: rooms.claim, tidy: raw.tidy},
		{name: "open and report alone", once: rooms.record},
		{name: "claim beside open, and report, nothing else", note: "new", once: rooms.bare, tidy: raw.tidy},
		{name: "two empty requests over HTTP", once: nothing.twice},
		{name: "executor.Do, new keys", note: "new", once: fd.fresh(fd.local)},
		{name: "caller-run over HTTP, new keys", note: "new", once: fd.fresh(fd.remote)},
		{name: "replays, in process", once: fd.replay(fd.local)},
		{name: "replays over HTTP", once: fd.replay(fd.remote)},
	}
	if o.postgres != "" {
		pg, err := openPostgres(ctx, o.postgres)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		closers = append(closers, pg.close)
		all = append(all, contestant{name: byHand, once: pg.once})
	}
	var chosen []contestant
	for _, c := range all {
		if strings.Contains(c.name, o.only) {
			chosen = append(chosen, c)
		}
	}
	return chosen, closeAll, nil
}

// remoteWorkloads returns the workload for a flightd at url.
func guestLine(ctx context.Context, url string) ([]contestant, func(), error) {
	remote, err := client.Connect(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	f := &flightd{remote: remote}
	run := rand.Uint64() // makes the keys of this run new
	once := func(ctx context.Context, n uint64) error {
		_, err := f.remote.Do(ctx, call(flight.MustKey(fmt.Sprintf("bench/charge/run-%d/order-%d", run, n))), nothingHappens)
		return err
	}
	return []contestant{{name: "caller-run over HTTP, new keys", note: "new", once: once}},
		func() { _ = remote.Close(context.Background()) }, nil
}
