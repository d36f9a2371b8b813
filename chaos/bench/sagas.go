package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// tripSaga has three steps, one after the other. Each step gets the input of the saga, and each undo a part of the result of its step.
const tripSaga = `{"saga": "trip", "version": 1, "steps": [
	{"name": "hotel", "input": {"$from": "/input"}, "undo": {"input": {"id": {"$from": "/steps/hotel/body/id"}}}},
	{"name": "seat", "needs": ["hotel"], "input": {"$from": "/input"}, "undo": {"input": {"id": {"$from": "/steps/seat/body/id"}}}},
	{"name": "pay", "needs": ["seat"], "input": {"$from": "/input"}, "no_undo": true}]}`

type tripInput struct {
	ID      string `json:"id"`
	Cents   int    `json:"cents"`
	Refused bool   `json:"refused"` // by the third step
}

var tripResult = json.RawMessage(`{"id":"room_17","ok":true}`)

// sagaOnce runs one saga until it is over.
type sagaOnce = func(ctx context.Context, n uint64, refused bool) error

// sagaWorkloads returns the two workloads of sagas at one place: three steps succeed, or the third one is refused and two are undone.
func sagaWorkloads(where string, once sagaOnce) []workload {
	const steps, undos, byHand = ", three steps", ", third step refused, two undos", "sagas in Postgres by hand"
	return []workload{
		{name: "sagas " + where + steps, byHand: byHand + steps, once: func(ctx context.Context, n uint64) error { return once(ctx, n, false) }},
		{name: "sagas " + where + undos, byHand: byHand + undos, once: func(ctx context.Context, n uint64) error { return once(ctx, n, true) }},
	}
}

// openFlightdSagas starts a worker of the steps over HTTP. Sagas are started, and waited for, through another client, as of another process.
func openFlightdSagas(ctx context.Context, f *flightd) (*jobQueue, sagaOnce, error) {
	c, err := client.Connect(ctx, f.url, client.WithNamespace("bench"))
	if err == nil {
		err = c.DefineSaga(ctx, "trip", 1, []byte(tripSaga))
	}
	if err != nil {
		return nil, nil, err
	}
	q, ctx := newJobQueue(ctx)
	w := c.Worker(client.Concurrency(queueWorkers))
	for _, action := range []string{"trip.hotel", "trip.seat", "trip.pay", "trip.hotel.undo", "trip.seat.undo"} {
		client.Work(w, action, func(_ context.Context, _ client.Attempt, in tripInput) (json.RawMessage, error) {
			if action == "trip.pay" && in.Refused {
				return nil, client.Refused(errors.New("declined"))
			}
			return tripResult, nil
		})
	}
	q.workers.Go(func() {
		_ = w.Run(ctx)
		_ = c.Close(context.Background())
	})
	return q, func(ctx context.Context, n uint64, refused bool) error {
		id, want := fmt.Sprintf("trip-%d", n), wire.SagaDone
		if refused {
			want = wire.SagaUndone
		}
		if _, err := f.remote.StartSaga(ctx, "trip@1", id, tripInput{id, 4200, refused}); err != nil {
			return err
		}
		s, err := f.remote.WaitSaga(ctx, flight.MustKey("bench/trip/"+id).FlightID())
		if err == nil && s.State != want {
			err = fmt.Errorf("saga %s is %s (%s)", id, s.State, s.Cause)
		}
		return err
	}, nil
}

// tripsByHand are the tables of the sagas by hand. A step and its undo are rows with a unique key, which a worker claims by FOR UPDATE SKIP LOCKED.
const tripsByHand = `drop table if exists flightd_bench_step, flightd_bench_saga;
	create table flightd_bench_saga (id text primary key, input jsonb not null, status text not null default 'running', done_at timestamptz);
	create table flightd_bench_step (seq bigserial, saga text not null, name text not null, status text not null default 'ready', input jsonb not null, result jsonb,
		claimed_at timestamptz, done_at timestamptz, primary key (saga, name));
	create index on flightd_bench_step (seq) where status = 'ready'`

// The statements of the sagas by hand. Each is one transaction: the end of a step is stored together with what follows from it.
const (
	startTrip = `with s as (insert into flightd_bench_saga (id, input) values ($1, $2) on conflict do nothing returning id, input)
		insert into flightd_bench_step (saga, name, input) select id, 'hotel', input from s`
	claimStep = `update flightd_bench_step set status = 'running', claimed_at = now() where (saga, name) = (
		select saga, name from flightd_bench_step where status = 'ready' order by seq limit 1 for update skip locked) returning saga, name, input`
	endStep  = `with e as (update flightd_bench_step set status = $3, result = $4, done_at = now() where saga = $1 and name = $2 and status = 'running' returning saga)`
	thenStep = endStep + ` insert into flightd_bench_step (saga, name, input) select e.saga, $5, s.input from e join flightd_bench_saga s on s.id = e.saga`
	// thenUndo also marks the saga, when it begins to be undone.
	thenUndo = endStep + `, m as (update flightd_bench_saga set status = 'undoing' from e where id = e.saga and $3 = 'refused')
		insert into flightd_bench_step (saga, name, input) select e.saga, $5 || '.undo', jsonb_build_object('id', s.result->'id')
		from e join flightd_bench_step s on s.saga = e.saga and s.name = $5`
	thenEnd = endStep + ` update flightd_bench_saga set status = $5, done_at = now() from e where id = e.saga`
)

// openPostgresSagas starts workers of sagas by hand. Rows that become ready wake a worker, and the end of a saga its caller, inside this
// process, so nobody polls.
func openPostgresSagas(ctx context.Context, p *postgres) (*jobQueue, sagaOnce, error) {
	if _, err := p.pool.Exec(ctx, tripsByHand, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, nil, err
	}
	q, ctx := newJobQueue(ctx)
	ready := make(chan struct{}, 1<<20)
	perform := func() error {
		var id, name string
		var input tripInput
		if err := p.pool.QueryRow(ctx, claimStep).Scan(&id, &name, &input); err != nil {
			ready <- struct{}{} // it was locked by another worker that saw an older state
			return err
		}
		status, query, next := "done", thenStep, ""
		switch {
		case name == "hotel":
			next = "seat"
		case name == "seat":
			next = "pay"
		case name == "pay" && input.Refused:
			status, query, next = "refused", thenUndo, "seat"
		case name == "pay":
			query, next = thenEnd, "done"
		case name == "seat.undo":
			query, next = thenUndo, "hotel"
		default:
			query, next = thenEnd, "undone"
		}
		if _, err := p.pool.Exec(ctx, query, id, name, status, string(tripResult), next); err != nil {
			return err
		}
		if next == "done" || next == "undone" {
			q.perform(id)
		} else {
			ready <- struct{}{}
		}
		return nil
	}
	for range queueWorkers {
		q.workers.Go(func() {
			for {
				select {
				case <-ready:
				case <-ctx.Done():
					return
				}
				if err := perform(); err != nil && !errors.Is(err, pgx.ErrNoRows) && ctx.Err() == nil {
					fmt.Println("a step by hand has failed:", err)
				}
			}
		})
	}
	return q, func(ctx context.Context, n uint64, refused bool) error {
		id := fmt.Sprintf("trip-%d", n)
		return q.submitted(ctx, id, func() error {
			_, err := p.pool.Exec(ctx, startTrip, id, tripInput{id, 4200, refused})
			ready <- struct{}{}
			return err
		})
	}, nil
}
