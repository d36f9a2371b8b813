package exec

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"
	"syscall"
)

// capture forwards a command's output as it arrives, and keeps its first bytes for the receipt. Both streams share one
// limit, in the order of arrival.
type capture struct {
	mu        sync.Mutex // guards remaining, writeErr and the contents of both streams
	remaining int        // how many more bytes are kept
	out, err  stream
	writeErr  error // the last write error; nil: none, or only EPIPE, because the reader has closed its end
}

// stream is stdout or stderr of a captured command.
type stream struct {
	capture *capture
	dst     io.Writer
	kept    bytes.Buffer
	size    int64
	sum     hash.Hash
}

func newCapture(limit int, out, err io.Writer) *capture {
	c := &capture{remaining: limit}
	c.out = stream{capture: c, dst: out, sum: sha256.New()}
	c.err = stream{capture: c, dst: err, sum: sha256.New()}
	return c
}

// Write never returns an error: an unread output must not stop an effect that has started.
func (s *stream) Write(b []byte) (int, error) {
	c := s.capture
	c.mu.Lock()
	keep := b[:min(len(b), c.remaining)]
	c.remaining -= len(keep)
	s.kept.Write(keep)
	s.size += int64(len(b))
	s.sum.Write(b)
	c.mu.Unlock()
	if _, err := s.dst.Write(b); err != nil && !errors.Is(err, syscall.EPIPE) {
		c.mu.Lock()
		c.writeErr = err
		c.mu.Unlock()
	}
	return len(b), nil
}

// writeError returns the last error of forwarding output.
func (c *capture) writeError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeErr
}
