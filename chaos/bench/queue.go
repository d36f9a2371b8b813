package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/flightd/flightd/client"
)

// queueWorkers is how many jobs the workers of a queue perform at once.
const queueWorkers = 64

// jobQueue is a queue of which each job is submitted, handed to a worker, and recorded with its result. The workers are
// in this process, and signal when they perform a job.
type jobQueue struct {
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu        sync.Mutex
	performed map[string]chan struct{} // by id, while a submitter waits
}

func newJobQueue(ctx context.Context) (*jobQueue, context.Context) {
	ctx, stop := context.WithCancel(ctx)
	return &jobQueue{stop: stop, performed: make(map[string]chan struct{})}, ctx
}

func (q *jobQueue) close() { q.stop(); q.workers.Wait() }

// perform is the effect of a job: it does nothing but signal.
func (q *jobQueue) perform(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if done := q.performed[id]; done != nil {
		close(done)
		delete(q.performed, id)
	}
}

// submitted waits until the job that submit has submitted is performed.
func (q *jobQueue) submitted(ctx context.Context, id string, submit func() error) error {
	done := make(chan struct{})
	q.mu.Lock()
	q.performed[id] = done
	q.mu.Unlock()
	if err := submit(); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type jobInput struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// openFlightdQueue starts a worker of a flightd, over HTTP. Submissions go through another client, as of another process.
func openFlightdQueue(ctx context.Context, f *flightd) (*jobQueue, func(context.Context, uint64) error, error) {
	c, err := client.Connect(ctx, f.url, client.WithNamespace("bench"))
	if err != nil {
		return nil, nil, err
	}
	q, ctx := newJobQueue(ctx)
	w := c.Worker(client.Concurrency(queueWorkers))
	client.Work(w, "queued", func(_ context.Context, _ client.Attempt, in jobInput) (json.RawMessage, error) {
		q.perform(in.ID)
		return smallAnswer.Body, nil
	})
	q.workers.Go(func() {
		_ = w.Run(ctx)
		_ = c.Close(context.Background())
	})
	return q, func(ctx context.Context, n uint64) error {
		id := fmt.Sprintf("job-%d", n)
		return q.submitted(ctx, id, func() error {
			_, err := f.remote.Submit(ctx, client.Key("queued", id), jobInput{id, 4200})
			return err
		})
	}, nil
}

// openPostgresQueue starts workers of a hand-written queue: a row per job with a unique key, claimed by FOR UPDATE SKIP LOCKED and
// updated with the result, each in a transaction. A submission wakes a worker inside this process, so nobody polls.
func openPostgresQueue(ctx context.Context, p *postgres) (*jobQueue, func(context.Context, uint64) error, error) {
	_, err := p.pool.Exec(ctx, `drop table if exists flightd_bench_queue; create table flightd_bench_queue (
		id bigserial, key text primary key, input jsonb not null, status text not null default 'ready', result jsonb, done_at timestamptz);
		create index on flightd_bench_queue (id) where status = 'ready'`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, nil, err
	}
	q, ctx := newJobQueue(ctx)
	ready := make(chan struct{}, 1<<20)
	for range queueWorkers {
		q.workers.Go(func() {
			for {
				select {
				case <-ready:
				case <-ctx.Done():
					return
				}
				var key string
				err := p.pool.QueryRow(ctx, `update flightd_bench_queue set status = 'running' where key = (
					select key from flightd_bench_queue where status = 'ready' order by id limit 1 for update skip locked) returning key`).Scan(&key)
				if err != nil {
					if ctx.Err() == nil {
						ready <- struct{}{} // it was locked by another worker that saw an older state
					}
					continue
				}
				q.perform(key)
				_, _ = p.pool.Exec(ctx, `update flightd_bench_queue set status = 'done', result = $2, done_at = now() where key = $1`, key, string(smallAnswer.Body))
			}
		})
	}
	return q, func(ctx context.Context, n uint64) error {
		id := fmt.Sprintf("job-%d", n)
		return q.submitted(ctx, id, func() error {
			_, err := p.pool.Exec(ctx, `insert into flightd_bench_queue (key, input) values ($1, $2) on conflict do nothing`, id, `{"amount":4200}`)
			ready <- struct{}{}
			return err
		})
	}, nil
}
