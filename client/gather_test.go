package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// onBatch has batches served by f, which gets the handler of the server and the lines; everything else is served as ever.
func (fi *fixture) onBatch(f func(w http.ResponseWriter, r *http.Request, lines [][]byte, api http.Handler)) {
	fi.mu.Lock()
	defer fi.mu.Unlock()
	api := fi.api
	fi.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hasSuffix(r, ":batch") {
			api.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		f(w, r, splitLines(body), api)
	})
}

func splitLines(body []byte) [][]byte {
	return bytes.SplitAfter(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
}

// effects counts the effects of each key.
type effects struct{ done sync.Map }

func (e *effects) handler(key flight.Key) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		n, _ := e.done.LoadOrStore(key, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		return effect.Answer{ContentType: "application/json", Body: []byte(`{"done": true}`)}, nil
	}
}

// doAll has n callers of as many keys act at once, and requires that each effect has happened once.
func (e *effects) doAll(t *testing.T, c *client.Client, from, n int) {
	t.Helper()
	var callers sync.WaitGroup
	failed := make([]error, n)
	for i := range n {
		callers.Go(func() {
			charge := crowdCall(from + i)
			_, failed[i] = c.Do(t.Context(), charge, e.handler(charge.Key))
		})
	}
	callers.Wait()
	require.NoError(t, errors.Join(failed...))
	for i := range n {
		done, _ := e.done.Load(crowdCall(from + i).Key)
		require.EqualValues(t, 1, done.(*atomic.Int32).Load(), "effects of %s", crowdCall(from+i).Key)
	}
}

// One caller sends no batch. What comes while requests are on their way goes with the next one: nothing waits for a time.
func TestGather_WhatWaitsGoesWithTheNext(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	g.useSession(c)
	require.Zero(t, g.count(":batch"), "a request that comes alone is sent by its own route")

	const waiting = 20
	hold, arrived := make(chan struct{}), make(chan int, 2*waiting)
	g.onBatch(func(w http.ResponseWriter, r *http.Request, lines [][]byte, api http.Handler) {
		arrived <- len(lines)
		<-hold
		api.ServeHTTP(w, r)
	})
	alone := make(chan struct{})
	g.mu.Lock()
	api := g.api
	g.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasSuffix(r, ":open") {
			alone <- struct{}{}
			<-hold
		}
		api.ServeHTTP(w, r)
	})
	g.mu.Unlock()
	ends := make(chan error, 3+waiting)
	open := func(i int) {
		go func() {
			_, err := c.Open(t.Context(), crowdCall(i).Key, client.OpenRequest{})
			ends <- err
		}()
	}
	open(0)
	<-alone // on its way by its own route, for as long as it takes
	open(1)
	require.Equal(t, 1, <-arrived, "a batch, which waits for nobody")
	open(2)
	require.Equal(t, 1, <-arrived)
	for i := range waiting {
		open(3 + i)
	}
	require.Eventually(t, func() bool { return c.Waiting() == waiting }, stateLimit, time.Millisecond)
	require.Empty(t, arrived, "enough batches are on their way")
	close(hold)
	require.Equal(t, waiting, <-arrived, "all that waited goes with the next one")
	for range cap(ends) {
		require.NoError(t, <-ends)
	}
}

// An open that has to wait for another caller holds up no other line: it is asked for alone, and joins.
func TestGather_TwoCallersOfOneKey(t *testing.T) {
	g := newFixture(t)
	first, second := g.connect(), g.connect()
	g.useSession(second)
	started, finish := make(chan struct{}), make(chan struct{})
	running := doInBackground(t.Context(), first, crowdCall(0), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-finish
		return effect.Answer{Body: []byte("paid")}, nil
	})
	<-started
	opens := g.count(":open")
	waiting := make(chan (<-chan doResult), 1)
	g.onBatch(func(w http.ResponseWriter, r *http.Request, _ [][]byte, api http.Handler) { api.ServeHTTP(w, r) })
	var all effects
	for from := 1; g.count(":batch") < 10; from += 20 { // the shared key is among the lines of some batch
		if from == 1 {
			waiting <- doInBackground(t.Context(), second, crowdCall(0), unreachableHandler(t))
		}
		all.doAll(t, second, from, 20)
	}
	require.Greater(t, g.count(":open"), opens, "the open that is busy is asked for by its own route")
	close(finish)
	require.NoError(t, (<-running).err)
	end := <-<-waiting
	require.NoError(t, end.err)
	require.Equal(t, effect.SourceJoined, end.result.Source)
}

// An answer that breaks off in the middle, or has lines in another order, leaves no doubt and no second effect: each line
// without an answer of its own is asked for again, with its nonce.
func TestGather_BrokenAnswers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, spoil := range map[string]func(random *rand.Rand, lines [][]byte) (written [][]byte, cut bool){
		"cut between lines": func(random *rand.Rand, lines [][]byte) ([][]byte, bool) { return lines[:random.IntN(len(lines))], true },
		"cut in a line": func(random *rand.Rand, lines [][]byte) ([][]byte, bool) {
			n := random.IntN(len(lines))
			return append(lines[:n:n], lines[n][:random.IntN(len(lines[n]))]), true
		},
		"a line is missing": func(random *rand.Rand, lines [][]byte) ([][]byte, bool) {
			n := random.IntN(len(lines))
			return append(lines[:n:n], lines[n+1:]...), false
		},
		"in another order": func(random *rand.Rand, lines [][]byte) ([][]byte, bool) {
			random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
			return append(lines, []byte(`{"line":1000,"status":201,"body":{}}`+"\n"), []byte("not flightd\n")), false
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			c := g.connect(client.WithRetryTimeout(time.Minute), client.WithReportTimeout(time.Minute))
			g.useSession(c)
			var mu sync.Mutex
			random, spoiled := rand.New(rand.NewPCG(seed, 1)), 0
			g.onBatch(func(w http.ResponseWriter, r *http.Request, _ [][]byte, api http.Handler) {
				mu.Lock()
				var lines [][]byte
				whole := httptest.NewRecorder()
				if api.ServeHTTP(whole, r); spoiled < 6 {
					spoiled++
					var cut bool
					lines, cut = spoil(random, splitLines(whole.Body.Bytes()))
					if mu.Unlock(); cut {
						defer panic(http.ErrAbortHandler)
					}
				} else {
					lines = [][]byte{whole.Body.Bytes()}
					mu.Unlock()
				}
				w.Header().Set("Content-Type", "application/x-ndjson")
				_, _ = w.Write(bytes.Join(lines, nil))
				_ = http.NewResponseController(w).Flush()
			})
			var all effects
			for from := 0; ; from += 30 {
				all.doAll(t, c, from, 30)
				mu.Lock()
				enough := spoiled == 6
				mu.Unlock()
				if enough {
					break
				}
			}
		})
	}
}

// A server that has no route for batches is asked by single requests from then on, and answers of other software in its place are no
// answers.
func TestGather_OtherServers(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"an older server": func(w http.ResponseWriter) { http.Error(w, `{"code":"not_found"}`, http.StatusNotFound) },
		"a rejection":     func(w http.ResponseWriter) { http.Error(w, `{"code":"input_invalid"}`, http.StatusBadRequest) },
		"a proxy":         func(w http.ResponseWriter) { http.Error(w, "bad gateway", http.StatusBadGateway) },
		"a portal":        func(w http.ResponseWriter) { _, _ = io.WriteString(w, "please log in") },
	} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			c := g.connect()
			g.useSession(c)
			var batches atomic.Int32
			g.onBatch(func(w http.ResponseWriter, r *http.Request, _ [][]byte, api http.Handler) {
				if batches.Add(1) <= 3 || name == "an older server" {
					answer(w)
					return
				}
				api.ServeHTTP(w, r)
			})
			var all effects
			for from := 0; from < 200; from += 50 {
				all.doAll(t, c, from, 50)
			}
			if name == "an older server" {
				require.LessOrEqual(t, batches.Load(), int32(2), "it is not asked again")
			}
		})
	}
}

// Trust counts from when the batch was sent, not from when its line was answered.
func TestGather_TrustCountsFromTheRequest(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	hold, arrived := make(chan struct{}), make(chan time.Time, 3)
	late := func(next http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			arrived <- time.Now()
			<-hold
			next.ServeHTTP(w, r)
		}
	}
	g.mu.Lock()
	g.api = late(g.api)
	g.mu.Unlock()
	answers := make(chan client.OpenAnswer, 2)
	for i := range 2 {
		go func() {
			a, err := c.Open(t.Context(), crowdCall(i).Key, client.OpenRequest{})
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	<-arrived
	last := <-arrived
	require.Equal(t, 1, g.count(":batch"))
	close(hold)
	for range 2 {
		a := <-answers
		require.Positive(t, a.TrustMS)
		require.False(t, a.SentAt.After(last))
	}
}

// A batch that hangs holds up nobody for longer than the time of one of its lines, and a caller who leaves takes its line back.
func TestGather_Hangs(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	g.useSession(c)
	var batches atomic.Int32
	arrived, gone := make(chan struct{}, 2), make(chan struct{}, 2)
	g.onBatch(func(w http.ResponseWriter, r *http.Request, _ [][]byte, api http.Handler) {
		if batches.Add(1) <= 2 {
			arrived <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
			return
		}
		api.ServeHTTP(w, r)
	})
	started, finished := make(chan struct{}), make(chan struct{})
	finish := sync.OnceFunc(func() { close(finished) })
	defer finish()
	g.mu.Lock()
	api := g.api
	g.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasSuffix(r, ":open") {
			close(started)
			<-finished
		}
		api.ServeHTTP(w, r)
	})
	g.mu.Unlock()
	open := func(ctx context.Context, i int) <-chan error {
		end := make(chan error, 1)
		go func() {
			_, err := c.Open(ctx, crowdCall(i).Key, client.OpenRequest{})
			end <- err
		}()
		return end
	}
	alone := open(t.Context(), 0)
	<-started
	leaving, leave := context.WithCancel(t.Context())
	hung := []<-chan error{open(leaving, 1)}
	<-arrived
	hung = append(hung, open(leaving, 2))
	<-arrived
	leavingFirst, leaveFirst := context.WithCancel(t.Context())
	waits := open(leavingFirst, 3)
	require.Eventually(t, func() bool { return c.Waiting() == 1 }, stateLimit, time.Millisecond)
	stays := open(t.Context(), 4)
	require.Eventually(t, func() bool { return c.Waiting() == 2 }, stateLimit, time.Millisecond)
	leaveFirst() // while both batches hang: afterwards the line could go with the next one
	require.ErrorIs(t, <-waits, context.Canceled)
	leave()
	for _, end := range hung {
		require.ErrorIs(t, <-end, context.Canceled)
	}
	<-gone
	<-gone
	require.NoError(t, <-stays, "the batches without a caller were given up, and the next one was sent")
	require.Nil(t, g.flight(crowdCall(3).Key), "its line was not sent")
	finish()
	require.NoError(t, <-alone)
}
