package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// Body lengths of a typical request and its answer.
const (
	requestBytes = 300
	answerBytes  = 600
)

// emptyServer is a lower bound for the cost of a flight's requests: a net/http server with an empty handler, and a minimal client that writes prepared bytes and discards
// the answer's body.
type emptyServer struct {
	server  *http.Server
	addr    string
	request []byte
	idle    chan *emptyConn
}

type emptyConn struct {
	net.Conn
	read *bufio.Reader
}

func openEmptyServer() (*emptyServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	answer := bytes.Repeat([]byte{' '}, answerBytes)
	e := &emptyServer{addr: listener.Addr().String(), idle: make(chan *emptyConn, 1024)}
	e.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the client returns the error of a broken connection
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	})}
	e.request = fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", e.addr, requestBytes, bytes.Repeat([]byte{' '}, requestBytes))
	go func() { _ = e.server.Serve(listener) }() // ends after close; not waited for
	return e, nil
}

func (e *emptyServer) close() { _ = e.server.Close() }

// twoRequests sends two requests, like a flight that its caller runs.
func (e *emptyServer) twoRequests(context.Context, uint64) error {
	c, err := e.getConn()
	if err != nil {
		return err
	}
	for range 2 {
		if err := e.roundTrip(c); err != nil {
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

func (e *emptyServer) getConn() (*emptyConn, error) {
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

func (e *emptyServer) roundTrip(c *emptyConn) error {
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
	_, err := c.read.Discard(answerBytes)
	return err
}
