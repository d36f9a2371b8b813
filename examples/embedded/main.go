// Command embedded is a program that embeds a node of a flightd cluster. It pays an order, which all programs of the cluster are
// asked to pay: one of them does, and the others print its receipt.
//
//	flightd cluster found --node a=127.0.0.1:7430 --node b=127.0.0.1:7440 --node c=127.0.0.1:7450 --out cluster
//	CGO_ENABLED=0 go run -trimpath ./examples/embedded --cluster cluster/a --data a --listen 127.0.0.1:7420    # and b and c, in terminals of their own
//
// It goes on until it is interrupted: two of the three have to run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/node"
)

func main() {
	cfg := node.Dev("", "")
	flag.StringVar(&cfg.Cluster, "cluster", "", "directory of this node, from flightd cluster found")
	flag.StringVar(&cfg.Data, "data", "", "data directory of this node")
	flag.StringVar(&cfg.Listen.Address, "listen", "", "address of this node's API")
	order := flag.String("order", "order-42", "order to pay")
	book := flag.String("book", "payments.txt", "file that stands for the provider: it gets a line for each payment")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, cfg, *order, *book, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the node until ctx ends, and pays the order as soon as the node takes requests.
func run(ctx context.Context, cfg node.Config, order, book string, out io.Writer) error {
	paid := make(chan error, 1)
	paid <- nil
	cfg.Ready = func(r node.Ready) {
		<-paid
		go func() { paid <- pay(ctx, r.Executor, order, book, out) }()
	}
	err := node.Run(ctx, cfg) // its stop waits for a payment that runs
	return errors.Join(err, <-paid)
}

// pay pays an order once, whichever program of the cluster is asked, and prints the receipt.
func pay(ctx context.Context, flights effect.Doer, order, book string, out io.Writer) error {
	call := effect.Call{Key: flight.MustKey("default/pay/" + order)}
	result, err := flights.Do(ctx, call, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		if err := at.Sending(); err != nil { // this program may not act any more
			return effect.Answer{}, err
		}
		f, err := os.OpenFile(book, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return effect.Answer{}, effect.NotDone(err)
		}
		_, err = fmt.Fprintln(f, order)
		return effect.Answer{ContentType: "text/plain", Body: []byte("receipt of " + order)}, errors.Join(err, f.Close())
	})
	if err == nil {
		_, err = fmt.Fprintf(out, "%s (%s)\n", result.Answer.Body, result.Source)
	}
	return err
}
