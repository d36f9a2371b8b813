package main

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"io"
	"sync"
)

// capture passes a command's output on as it comes, and keeps the beginning of it for the receipt: so many bytes of
// both streams together, in the order in which they came.
type capture struct {
	mu       sync.Mutex
	left     int
	out, err stream
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
	_, _ = s.to.Write(b)
	return len(b), nil
}
