package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

// readyTimeout bounds one try of flightd ready.
const readyTimeout = 3 * time.Second

// readyInterval is the time between two tries with --wait.
const readyInterval = 100 * time.Millisecond

func newReadyCommand(a *cli.App) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "ready",
		Short: "Check whether a server can take new flights, for health checks and probes",
		Long: `Asks /readyz once, for 3 s at most, or with --wait until the server is ready. The exit code is 0 if the server can take new
flights, else 69 with the reason. A restored ledger is ready, and takes new flights after flightd restore finish. It needs no
token, and it works in the container image, which has no other program. It prints what the ledger holds, where no token is
needed to see that: at flightd dev and at a listen_metrics address. Elsewhere it prints whether the ledger is new and empty.

It asks the server of --server or FLIGHTD_ADDR; without them the node of the settings file: the address of listen_metrics, else
of listen. The certificate of the node's own listen address is not verified, because nothing secret is sent there. A node that
demands client certificates needs a listen_metrics address for its health check.`,
		Example: `  flightd ready
  flightd ready --wait 30s
  flightd ready --server https://flightd.example.com:7420 --ca-file ca.crt`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return cli.UsageError("--wait cannot be negative")
			}
			return awaitReady(cmd.Context(), a, wait)
		},
	}
	cli.DurationVar(c.Flags(), &wait, "wait", 0, "how long to ask again while the server is not ready; 0: ask once")
	return c
}

// awaitReady asks until the server is ready or wait is over. An error of TLS is returned at once, because time does not mend
// it.
func awaitReady(ctx context.Context, a *cli.App, wait time.Duration) error {
	address, config, err := readyAddress(a)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(wait)
	ledger, err := askReady(ctx, address, config)
	for err != nil && cli.TLSHint(err) == "" && ctx.Err() == nil && time.Until(deadline) > readyInterval {
		select {
		case <-time.After(readyInterval):
			ledger, err = askReady(ctx, address, config)
		case <-ctx.Done():
		}
	}
	if err != nil {
		return &cli.Error{Code: cli.ExitUnreachable, Err: fmt.Errorf("%s is not ready: %w", address, err), Hint: cli.TLSHint(err)}
	}
	address = cli.HideUser(address)
	text := "ready"
	if ledger != nil && (ledger.Empty || ledger.Flights > 0) {
		text += "; its ledger: " + cli.LedgerText(ledger, time.Now())
	}
	return a.Print(struct {
		Ready   bool             `json:"ready"`
		Address string           `json:"address"`
		Ledger  *wire.LedgerInfo `json:"ledger,omitzero"`
	}{true, address, ledger}, cli.Text("%s\n", text), address)
}

// readyAddress returns the address to ask and the TLS settings for it.
func readyAddress(a *cli.App) (string, *tls.Config, error) {
	metrics, listen := a.Setting("listen_metrics").Value, a.Setting("listen").Value
	switch {
	case a.Setting("server").Source <= cli.FromEnv, a.Setting("server").Source == cli.FromFile && metrics == "" && a.Setting("listen").Source == cli.FromDefault:
		config, err := a.ClientTLS()
		return a.Servers[0], config, err
	case metrics != "":
		return "http://" + localAddress(metrics), nil, nil
	case a.Setting("tls_cert").Value != "":
		config, err := a.ClientTLS() // with a client certificate, if one is set
		if err == nil {
			config.InsecureSkipVerify = true // the node's own address on this machine; no secret is sent
		}
		return "https://" + localAddress(listen), config, err
	}
	return "http://" + localAddress(listen), nil, nil
}

// localAddress returns the address at which this machine reaches a listener: an unspecified host is reached over
// loopback.
func localAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// askReady returns what the server says about its ledger if it is ready, else the reason as the error.
func askReady(ctx context.Context, address string, config *tls.Config) (*wire.LedgerInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no answer for %v", readyTimeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/readyz", nil)
	if err != nil { // its text may have a part of a password
		return nil, errors.New("this is not an address of a server, such as http://127.0.0.1:7420")
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true} // and no proxy
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	var ready struct {
		wire.Ready
		Code   wire.Code `json:"code"`
		Detail string    `json:"detail"`
	}
	if json.Unmarshal(body, &ready) == nil && ready.Ready.Ready && answer.StatusCode == http.StatusOK {
		return ready.Ledger, nil
	}
	var reasons []string
	for _, c := range ready.Checks {
		if !c.OK {
			reasons = append(reasons, c.Name+": "+c.Error)
		}
	}
	if ready.Code != "" {
		reasons = append(reasons, string(ready.Code)+": "+ready.Detail)
	}
	if len(reasons) == 0 {
		return nil, fmt.Errorf("it answers %d, and not as flightd does: %.100q", answer.StatusCode, body)
	}
	return nil, errors.New(cli.OneLine(strings.Join(reasons, "; ")))
}
