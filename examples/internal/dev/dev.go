// Package dev connects the examples to a server.
package dev

import (
	"context"
	"errors"
	"os"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/node"
)

// Connect connects to the server at FLIGHTD_ADDR. Without that it runs a node as `flightd dev` does, with an empty ledger that ends with it.
// stop must be called.
func Connect(ctx context.Context, opts ...client.Option) (c *client.Client, stop func() error, err error) {
	if address := os.Getenv("FLIGHTD_ADDR"); address != "" {
		c, err = client.Connect(ctx, address, opts...)
		return c, func() error { return c.Close(context.WithoutCancel(ctx)) }, err
	}
	dir, err := os.MkdirTemp("", "flightd-example-")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cfg, ready, ended := node.Dev(dir, "127.0.0.1:0"), make(chan string, 1), make(chan error, 1)
	cfg.Ready = func(r node.Ready) { ready <- r.URL }
	go func() { ended <- node.Run(ctx, cfg) }()
	end := func(first error) error {
		cancel()
		return errors.Join(first, <-ended, os.RemoveAll(dir))
	}
	select {
	case url := <-ready:
		if c, err = client.Connect(ctx, url, append(opts, client.WithoutSpool())...); err == nil {
			return c, func() error { return end(c.Close(context.WithoutCancel(ctx))) }, nil
		}
	case err = <-ended:
		ended <- nil
	}
	return nil, nil, end(err)
}
