package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

// sagaSlots is how many sagas run at once.
const sagaSlots = 64

// runSagas defines the sagas, and runs as many as are asked for, with pauses until stop is closed, until each is over.
func (c *callers) runSagas(o *order, stop <-chan struct{}) {
	defs := sagaDefinitions()
	for _, d := range defs {
		for c.mixed[0].DefineSaga(context.Background(), d.Saga, 1, d.JSON()) != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	var slots sync.WaitGroup
	var next atomic.Int64
	for range sagaSlots {
		slots.Go(func() {
			for pause := rand.N(o.Every + 1); ; pause = rand.N(2*o.Every + 1) {
				i := int(next.Add(1)) - 1
				if i >= o.Count {
					return
				}
				select {
				case <-time.After(pause):
				case <-stop:
				}
				end := c.runSaga(defs[i%len(defs)], fmt.Sprintf("saga-%d-%d", c.cfg.Seed, i), i, o.Lasts)
				c.mu.Lock()
				c.sagas = append(c.sagas, end)
				c.mu.Unlock()
			}
		})
	}
	slots.Wait()
}

// runSaga starts a saga, at several nodes if answers are lost, and waits until it is over. Two persons at two nodes cancel one in six of them at once.
// A person decides the doubts of the others by the books, and cancels a saga whose step may be undone without that.
func (c *callers) runSaga(d *saga.Definition, id string, i int, atMost time.Duration) *SagaEnd {
	key := flight.MustKey("default/" + d.Saga + "/" + id)
	end := &SagaEnd{Key: key.String(), Began: time.Now()}
	var lasts [5]int64
	for n := range lasts {
		lasts[n] = 10 + rand.Int64N(300)
	}
	c.askNodes(i, func(ctx context.Context, node *client.Client) error {
		_, err := node.StartSaga(ctx, d.Saga, id, map[string]any{"lasts_ms": lasts})
		return err
	})
	var persons sync.WaitGroup
	defer persons.Wait()
	if i%6 == rand.IntN(6) {
		after := rand.N(1200 * time.Millisecond)
		end.Cancels = make([]string, 2)
		for person := range end.Cancels {
			persons.Go(func() {
				time.Sleep(after)
				end.Cancels[person] = c.cancelSaga(c.only[c.cfg.Nodes[(i+person)%len(c.cfg.Nodes)]], key)
			})
		}
	}
	for until := time.Now().Add(atMost); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		by := c.mixed[rand.IntN(len(c.mixed))]
		ctx, cancel := context.WithDeadline(context.Background(), until)
		s, err := by.WaitSaga(ctx, key.FlightID())
		if err == nil && s.State == wire.SagaInDoubt {
			for n := range s.Steps {
				undo := d.Steps[n].Undo
				for _, f := range []*client.Flight{s.Steps[n].Flight, s.Steps[n].Undo} {
					switch {
					case f == nil || f.State != wire.SagaInDoubt:
					case undo != nil && undo.SafeIfAbsent && f == s.Steps[n].Flight:
						if s.Cancel == nil {
							c.cancelSaga(by, key)
						}
					default:
						if err = cmp.Or(err, c.decideDoubt(ctx, by, flight.MustKey(f.Key), f.Version)); err == nil {
							end.Doubts++
						}
					}
				}
			}
		}
		cancel()
		if err != nil {
			end.Err = fmt.Sprintf("%T: %v", err, err)
		} else if s.Over() {
			break
		}
	}
	return end
}

// cancelSaga cancels a saga as a person does, who looks again when it has gone on meanwhile. It returns accepted, or the code of the error.
func (c *callers) cancelSaga(by *client.Client, key flight.Key) string {
	for seen := ""; ; {
		f, err := by.Flight(context.Background(), key.FlightID())
		if err == nil {
			_, err = by.Cancel(context.Background(), key.FlightID(), f.Version, client.OperatorRequest{Reason: "a person has cancelled it"})
		}
		switch {
		case err == nil:
			return "accepted"
		case f == nil || client.CodeOf(err) != wire.PreconditionFailed || f.Version == seen:
			return codeOf(err)
		}
		seen = f.Version
	}
}

// readSagas says what has become of the sagas, also after they were over.
func (c *callers) readSagas() {
	for _, end := range c.sagas {
		s, err := c.mixed[0].Saga(context.Background(), flight.MustKey(end.Key).FlightID())
		if err == nil {
			end.read(s)
		} else {
			end.Err = fmt.Sprintf("%T: %v", err, err)
		}
		c.say(&event{SagaEnd: end})
	}
}

// read takes over what a node says about the saga.
func (end *SagaEnd) read(s *client.Saga) {
	end.State, end.Why, end.Over, end.Steps = s.State, s.Cause, s.FinishedAt.Time, make(map[string]StepEnd)
	if s.Cancel != nil {
		end.MarkedAt = s.Cancel.At.Time
	}
	for i := range s.Steps {
		for name, f := range map[string]*client.Flight{s.Steps[i].Step: s.Steps[i].Flight, s.Steps[i].Step + ".undo": s.Steps[i].Undo} {
			if f == nil {
				continue
			}
			step := StepEnd{State: f.State, Created: f.CreatedAt.Time, Finished: f.FinishedAt.Time, Overlap: f.Overlap}
			if f.Attempts == 1 && f.LastAttempt != nil {
				step.Opened = f.LastAttempt.OpenedAt.Time
			}
			end.Steps[name] = step
			if end.State == wire.SagaInDoubt && f.State == wire.SagaInDoubt {
				end.Why = cmp.Or(f.Cause, end.Why)
			}
		}
	}
}
