package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"
	"syscall"
)

// capture passes a command's output on as it comes, and keeps the beginning of it for the receipt: so many bytes of
// both streams together, in the order in which they came.
type capture struct {
	mu       sync.Mutex
	left     int
	out, err stream
	lost     error // why output did not get to where it goes; nil: it did, or its reader had seen enough
}

// stream is one of the two.
type stream struct {
	capture *capture
	to      io.Writer
	kept    bytes.Buffer
	size    int64
	sum     hash.Hash
}

func newCapture(limit int, out, err io.Writer) *capture {
	c := &capture{left: limit}
	c.out = stream{capture: c, to: out, sum: sha256.New()}
	c.err = stream{capture: c, to: err, sum: sha256.New()}
	return c
}

// Write keeps what fits, and never fails: that nobody reads our output must not keep an effect from going on.
func (s *stream) Write(b []byte) (int, error) {
	c := s.capture
	c.mu.Lock()
	keep := b[:min(len(b), c.left)]
	c.left -= len(keep)
	s.kept.Write(keep)
	s.size += int64(len(b))
	s.sum.Write(b)
	c.mu.Unlock()
	if _, err := s.to.Write(b); err != nil && !errors.Is(err, syscall.EPIPE) {
		c.mu.Lock()
		c.lost = err
		c.mu.Unlock()
	}
	return len(b), nil
}

func (c *capture) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}
