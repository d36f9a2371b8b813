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
	return cli.CommandGroup("cert", "Make a small CA, a server's certificate, and certificates of clients", newCertInitCommand(a), newCertClientCommand(a))
}

// Validity in days.
const (
	leafDays        = 825
	longestLeafDays = 3650
)

func newCertInitCommand(a *cli.App) *cobra.Command {
	var hosts []string
	days := leafDays
	c := &cobra.Command{
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
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkDays(days); err != nil {
				return err
			}
			store := cert.Store{Dir: args[0]}
			made, err := store.InitServer(hosts, days)
			if err != nil {
				return certError(err)
			}
			return printCertificate(a, made)
		},
	}
	c.Flags().StringSliceVar(&hosts, "host", nil, "names and addresses under which callers reach the server")
	c.Flags().IntVar(&days, "days", leafDays, "validity of server.crt")
	return c
}

func newCertClientCommand(a *cli.App) *cobra.Command {
	days := leafDays
	c := &cobra.Command{
		Use:   "client DIRECTORY NAME",
		Short: "Make a client's certificate with the CA of a directory",
		Long: `Makes client-NAME.crt and client-NAME.key with the CA in the directory, for a server with --tls-client-ca ca.crt. A client
certificate is demanded besides the token and not instead of it. In a directory that has them, client renews the certificate
and keeps its key.`,
		Example: `  flightd cert client /etc/flightd/tls billing
  FLIGHTD_CLIENT_CERT=client-billing.crt FLIGHTD_CLIENT_KEY=client-billing.key flightd whoami`,
		Args: cli.ExactArgs(2, "a directory and a name"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkDays(days); err != nil {
				return err
			}
			if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`).MatchString(args[1]) {
				return cli.UsageError("%q is not a name: up to 63 letters, digits, '.', '_' and '-', with a letter or digit first", args[1])
			}
			store := cert.Store{Dir: args[0]}
			made, err := store.IssueClient(args[1], days)
			if err != nil {
				return certError(err)
			}
			return printCertificate(a, made)
		},
	}
	c.Flags().IntVar(&days, "days", leafDays, "validity of the certificate")
	return c
}

func checkDays(days int) error {
	if days < 1 || days > longestLeafDays {
		return cli.UsageError("--days %d: from 1 to %d", days, longestLeafDays)
	}
	return nil
}

// certError adds the exit code to an error of a cert.Store: the directory or the CA in it cannot be used.
func certError(err error) error {
	if invalid, ok := errors.AsType[*flight.InvalidError](err); ok {
		return cli.UsageError("--host %s", invalid.Detail)
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
