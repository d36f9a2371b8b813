package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/flightd/flightd/flight"
)

// What a flight cannot cost less than, as long as it is made of these parts.

// bare is a claim beside an open, and then a report, with nothing of the executor around them.
func (p *parts) bare(ctx context.Context, n uint64) error {
	c := call(orderKey("bare", n))
	held, err := p.session.Reserve(ctx, c.Key, flight.Nonce{1})
	if err != nil {
		return err
	}
	defer held.Release()
	claimed := make(chan error, 1)
	go func() { claimed <- held.Claim(ctx) }()
	return errors.Join(p.fly(ctx, c, held.Session()), <-claimed)
}

// Lengths of a usual request and its answer, without what the server adds by itself.
const (
	usualRequest = 300
	usualAnswer  = 600
)

// empty is a server of the standard library that does nothing, and the leanest client that there can be: it writes bytes that
// were made beforehand and reads the answer's length.
type empty struct {
	server  *http.Server
	addr    string
	request []byte
	idle    chan *emptyConn
}

type emptyConn struct {
	net.Conn
	read *bufio.Reader
}

func openEmpty() (*empty, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	answer := bytes.Repeat([]byte{' '}, usualAnswer)
	e := &empty{addr: listener.Addr().String(), idle: make(chan *emptyConn, 1024)}
	e.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the bench notices a broken connection by itself
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	})}
	e.request = fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", e.addr, usualRequest, bytes.Repeat([]byte{' '}, usualRequest))
	go func() { _ = e.server.Serve(listener) }()
	return e, nil
}

func (e *empty) close() { _ = e.server.Close() }

// twice makes two requests, as a flight of a caller that acts itself does.
func (e *empty) twice(context.Context, uint64) error {
	c, err := e.get()
	if err != nil {
		return err
	}
	for range 2 {
		if err := e.once(c); err != nil {
			return err
		}
	}
	select {
	case e.idle <- c:
	default:
		_ = c.Close()
	}
	return nil
}

func (e *empty) get() (*emptyConn, error) {
	select {
	case c := <-e.idle:
		return c, nil
	default:
	}
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		return nil, err
	}
	return &emptyConn{c, bufio.NewReader(c)}, nil
}

func (e *empty) once(c *emptyConn) error {
	if _, err := c.Write(e.request); err != nil {
		return err
	}
	for {
		line, err := c.read.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == len("\r\n") {
			break
		}
	}
	_, err := c.read.Discard(usualAnswer)
	return err
}
