package main

import "sync"

// batcher is a minimal group commit: the items that arrive during one write form the next batch.
type batcher struct {
	mu       sync.Mutex // guards waiting and busy
	waiting  []job
	busy     bool // a goroutine runs; it ends when no item is waiting
	maxBatch int
	write    func(items []string) error
}

type job struct {
	item string
	done chan error
}

func newBatcher(maxBatch int, write func([]string) error) *batcher {
	return &batcher{maxBatch: maxBatch, write: write}
}

func (b *batcher) do(item string) error {
	j := job{item, make(chan error, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, j)
	if !b.busy {
		b.busy = true
		go b.run()
	}
	b.mu.Unlock()
	return <-j.done
}

func (b *batcher) run() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), b.maxBatch)
		if n == 0 {
			b.busy = false
			b.mu.Unlock()
			return
		}
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.mu.Unlock()
		items := make([]string, n)
		for i, j := range batch {
			items[i] = j.item
		}
		err := b.write(items)
		for _, j := range batch {
			j.done <- err
		}
	}
}
