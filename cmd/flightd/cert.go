package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/cert"
)

func newCertCommand(a *cli.App) *cobra.Command {
	var hosts []string
	server := certCommand(a, &cobra.Command{
		Use:   "init DIRECTORY",
		Short: "Make a CA and a server's certificate; again: renew the server's certificate",
		Long: `Makes a CA and a certificate for flightd serve:

  ca.crt       the CA, for the callers' FLIGHTD_CA_FILE; valid for ten years
  ca.key       its key: keep it off the server, and bring it back to renew
  server.crt   the certificate for --tls-cert; for --host, and always for localhost and the loopback addresses
  server.key   its key, for --tls-key

In a directory that has a CA, init renews server.crt with that CA, at once: a running server uses the new certificate for new
connections. It keeps server.key, and without --host the names of the old certificate; --host replaces them all, and init says which are
gone. It never replaces a CA.`,
		Example: `  flightd cert init /etc/flightd/tls --host flightd.example.com,10.0.0.7
  flightd cert init /etc/flightd/tls                   # renew`,
		Args: cli.ExactArgs(1, "a directory"),
	}, "validity of server.crt", func(store *cert.Store, _ []string, days int) (*cert.Made, error) {
		return store.InitServer(hosts, days)
	})
	server.Flags().StringSliceVar(&hosts, "host", nil, "names and addresses under which callers reach the server")
	return cli.CommandGroup("cert", "Make a small CA, a server's certificate, and certificates of clients", server, certCommand(a, &cobra.Command{
		Use:   "client DIRECTORY NAME",
		Short: "Make a client's certificate with the CA of a directory",
		Long: `Makes client-NAME.crt and client-NAME.key with the CA in the directory, for a server with --tls-client-ca ca.crt. A client
certificate is demanded besides the token and not instead of it. In a directory that has them, client renews the certificate
and keeps its key.`,
		Example: `  flightd cert client /etc/flightd/tls billing
  FLIGHTD_CLIENT_CERT=client-billing.crt FLIGHTD_CLIENT_KEY=client-billing.key flightd whoami`,
		Args: cli.ExactArgs(2, "a directory and a name"),
	}, "validity of the certificate", func(store *cert.Store, args []string, days int) (*cert.Made, error) {
		if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`).MatchString(args[1]) {
			return nil, cli.UsageError("%q is not a name: up to 63 letters, digits, '.', '_' and '-', with a letter or digit first", args[1])
		}
		return store.IssueClient(args[1], days)
	}))
}

// issueCall makes a certificate.
type issueCall func(store *cert.Store, args []string, days int) (*cert.Made, error)

// certCommand completes a command that makes a certificate. validity describes --days.
func certCommand(a *cli.App, c *cobra.Command, validity string, issue issueCall) *cobra.Command {
	const normal, longest = 825, 3650
	days := c.Flags().Int("days", normal, validity)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *days < 1 || *days > longest {
			return cli.UsageError("--days %d: from 1 to %d", *days, longest)
		}
		made, err := issue(&cert.Store{Dir: args[0]}, args, *days)
		if err != nil {
			return certError(err)
		}
		return printCertificate(a, made)
	}
	return c
}

// certError adds the exit code to an error of a cert.Store: the directory or the CA in it cannot be used.
func certError(err error) error {
	if invalid, ok := errors.AsType[*flight.InvalidError](err); ok {
		return cli.UsageError("--host %s", invalid.Detail)
	}
	if _, ok := errors.AsType[*cli.Error](err); ok {
		return err
	}
	failed := &cli.Error{Code: cli.ExitConfig, Err: err}
	if unusable, ok := errors.AsType[*cert.Error](err); ok {
		failed.Hint = unusable.Hint
	}
	return failed
}

func printCertificate(a *cli.App, m *cert.Made) error {
	if dropped := strings.Join(m.DroppedHosts, ","); dropped != "" {
		a.Say("the new certificate is not for %s, as the old one was: callers that use these names cannot connect; to keep them, run init again with --host %s",
			dropped, strings.Join(append(slices.Clone(m.Hosts), m.DroppedHosts...), ","))
	}
	ca := map[bool]string{true: "made now; keep its key off the server", false: "as it was"}[m.CAIsNew]
	about := "expires " + m.ExpiresAt
	if len(m.Hosts) > 0 {
		about += "; for " + strings.Join(m.Hosts, ", ")
	}
	return a.PrintList([]string{"FILE", "PATH", "ABOUT"}, [][]string{
		{"CA", m.CA, ca}, {"certificate", m.Cert, about}, {"key", m.Key, "readable by you alone"},
	}, []string{m.Cert}, m)
}
