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

	"github.com/flightd/flightd/httpapi/wire"
)

// readyTimeout bounds one try of flightd ready.
const readyTimeout = 3 * time.Second

// readyInterval is the time between two tries with --wait.
const readyInterval = 100 * time.Millisecond

func (a *app) readyCommand() *cobra.Command {
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
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return usageError("--wait cannot be negative")
			}
			return a.ready(cmd.Context(), wait)
		},
	}
	c.Flags().DurationVar(&wait, "wait", 0, "how long to ask again while the server is not ready; 0: ask once")
	return c
}

// ready asks until the server is ready or wait is over. An error of TLS is returned at once, because time does not mend
// it.
func (a *app) ready(ctx context.Context, wait time.Duration) error {
	address, config, err := a.readyAddress()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(wait)
	ledger, err := askReady(ctx, address, config)
	for err != nil && tlsHint(err) == "" && ctx.Err() == nil && time.Until(deadline) > readyInterval {
		select {
		case <-time.After(readyInterval):
			ledger, err = askReady(ctx, address, config)
		case <-ctx.Done():
		}
	}
	if err != nil {
		return &exitError{code: exitUnreachable, err: fmt.Errorf("%s is not ready: %w", address, err), hint: tlsHint(err)}
	}
	address = hideUser(address)
	switch a.format {
	case "json", "yaml":
		return a.printData(struct {
			Ready   bool             `json:"ready"`
			Address string           `json:"address"`
			Ledger  *wire.LedgerInfo `json:"ledger,omitzero"`
		}{true, address, ledger})
	case "id":
		_, err = fmt.Fprintln(a.out, address)
	default:
		text := "ready"
		if ledger != nil && (ledger.Empty || ledger.Flights > 0) {
			text += "; its ledger: " + ledgerText(ledger, time.Now())
		}
		_, err = fmt.Fprintln(a.out, text)
	}
	return err
}

// readyAddress returns the address to ask and the TLS settings for it.
func (a *app) readyAddress() (string, *tls.Config, error) {
	metrics, listen := a.setting("listen_metrics").Value, a.setting("listen").Value
	switch {
	case a.setting("server").source <= fromEnv, a.setting("server").source == fromFile && metrics == "" && a.setting("listen").source == fromDefault:
		config, err := a.clientTLS()
		return a.servers[0], config, err
	case metrics != "":
		return "http://" + localAddress(metrics), nil, nil
	case a.setting("tls_cert").Value != "":
		config, err := a.clientTLS() // with a client certificate, if one is set
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
	var said struct {
		wire.Ready
		Code   wire.Code `json:"code"`
		Detail string    `json:"detail"`
	}
	if json.Unmarshal(body, &said) == nil && said.Ready.Ready && answer.StatusCode == http.StatusOK {
		return said.Ledger, nil
	}
	var reasons []string
	for _, c := range said.Checks {
		if !c.OK {
			reasons = append(reasons, c.Name+": "+c.Error)
		}
	}
	if said.Code != "" {
		reasons = append(reasons, string(said.Code)+": "+said.Detail)
	}
	if len(reasons) == 0 {
		return nil, fmt.Errorf("it answers %d, and not as flightd does: %.100q", answer.StatusCode, body)
	}
	return nil, errors.New(oneLine(strings.Join(reasons, "; ")))
}
