package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// The guards of updates of registers, beside the recoveries of flightd.
const (
	guardMutex = "mutex"      // a mutex of etcd
	guardLook  = "mutex-look" // the same, and its holder looks at its session right before it writes
)

const (
	lockRegisters = 3 // of each guard
	lockQueue     = 3 // how many jobs of a lane are not over
	lockSession   = lease.MinTTL
)

// register is what the provider keeps, and what a worker writes back: the keys of all updates.
type register struct {
	Version int // how often it was written, when it was read
	Keys    []string
}

// write is an effect at a register.
type write struct {
	Effect
	over string // the key of the update that it overwrites, whose value its worker had not read; "": it had read it
}

// registerOf returns the name of the register of an update, which is also that of its lane. The name of its key begins with its guard.
func registerOf(key string) string { return key[:strings.LastIndexByte(key, '-')] }

func (p *provider) readRegister(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	text, err := json.Marshal(p.values[r.PathValue("name")])
	p.mu.Unlock()
	if err != nil {
		panic(err)
	}
	answer(w, string(text))
}

// writeRegister protects nothing: every write counts, whatever it was made from, except a repeat of an idempotency key of recovery resend.
func (p *provider) writeRegister(w http.ResponseWriter, r *http.Request) {
	var asked register
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Keys) == 0 {
		http.Error(w, fmt.Sprintf("a register has keys: %v", err), http.StatusBadRequest)
		return
	}
	time.Sleep(rand.N(100 * time.Millisecond))
	name := r.PathValue("name")
	p.mu.Lock()
	before := p.values[name]
	done := write{Effect: Effect{Key: asked.Keys[len(asked.Keys)-1], At: time.Now(), Agent: r.UserAgent(),
		IdempotencyKey: r.Header.Get(effect.HeaderIdempotencyKey), FencingToken: r.Header.Get(effect.HeaderFencingToken)}}
	if p.recordLocked(&done.Effect); !done.Repeat {
		if asked.Version != before.Version {
			done.over = before.Keys[len(before.Keys)-1]
		}
		p.values[name] = register{before.Version + 1, asked.Keys}
	}
	p.writes = append(p.writes, done)
	p.mu.Unlock()
	time.Sleep(rand.N(100 * time.Millisecond))
	answer(w, done.Body)
}

// update reads the register of a key, waits a moment, and writes it back with the key added.
func (c *callers) update(ctx context.Context, key string, sending http.RoundTripper) (effect.Answer, error) {
	url := c.cfg.Provider + "/registers/" + registerOf(key)
	var r register
	read, err := (&http.Client{Transport: c.network}).Get(url)
	if err == nil {
		err = errors.Join(json.NewDecoder(read.Body).Decode(&r), read.Body.Close())
	}
	if err != nil {
		return effect.Answer{}, effect.NotDone(err)
	}
	time.Sleep(20*time.Millisecond + rand.N(180*time.Millisecond))
	body, err := json.Marshal(register{r.Version, append(r.Keys, key)})
	request, wrong := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err := errors.Join(err, wrong); err != nil {
		return effect.Answer{}, effect.NotDone(err)
	}
	return effect.FromHTTP((&http.Client{Transport: sending}).Do(request))
}

// runMutexWorker updates registers under a mutex of etcd until the process gets SIGTERM.
func runMutexWorker(settings, name string, out io.Writer) error {
	c := &callers{out: out, network: &http.Transport{}}
	if err := json.Unmarshal([]byte(settings), &c.cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{c.cfg.MutexEtcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer etcd.Close()
	c.say(&event{Done: "connected"})
	var session *concurrency.Session
	for n := 0; ctx.Err() == nil; n++ {
		if session == nil || session.Ctx().Err() != nil {
			if session, err = concurrency.NewSession(etcd, concurrency.WithTTL(int(lockSession.Seconds()))); err != nil {
				return err
			}
		}
		guard, holding := guardMutex, context.Background()
		if n%2 == 1 {
			guard, holding = guardLook, session.Ctx() // a request does not begin under a context that is over
		}
		end := JobEnd{Key: fmt.Sprintf("default/%s/job-%d-%s.%d", guard, rand.IntN(lockRegisters), name, n)}
		mutex := concurrency.NewMutex(session, registerOf(end.Key))
		if err := mutex.Lock(ctx); err != nil {
			continue // the session has ended
		}
		answer, err := c.update(holding, end.Key, c.network)
		if end.Body = string(answer.Body); err != nil {
			end.Body, end.Err = "", err.Error()
		}
		c.say(&event{JobEnd: &end})
		_ = mutex.Unlock(context.Background()) // if it fails, the session has ended
	}
	return nil
}

// submitLanes keeps jobs in the lane of each register until stop is closed, and waits until they are over. It decides doubts.
func (c *callers) submitLanes(stop <-chan struct{}) {
	var lanes sync.WaitGroup
	defer lanes.Wait()
	for i := range 3 * lockRegisters {
		lane := fmt.Sprintf("default/%s/job-%d", recoveries[i%3], i/3)
		lanes.Go(func() {
			waiting := make(chan struct{}, lockQueue)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case waiting <- struct{}{}:
				}
				j := Job{Key: fmt.Sprintf("%s-%06d", lane, n), Lane: lane, Limit: 1}
				end := JobEnd{Key: j.Key, Queued: c.submitJob(&j)}
				lanes.Go(func() {
					c.awaitJob(&end)
					c.say(&event{JobEnd: &end})
					<-waiting
				})
			}
		})
	}
}

// readFlags reads the flights of keys.
func (c *callers) readFlags(keys []string) {
	for _, key := range keys {
		f, err := c.mixed[0].Flight(context.Background(), flight.MustKey(key).FlightID())
		if err != nil {
			panic(err) // the cluster is whole
		}
		c.say(&event{Reading: &Reading{Key: key, State: f.State, Overlap: f.Overlap}})
	}
}
