package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/internal/wire"
)

// verbWords are the verbs that a token may have.
func verbWords() []string { return []string{"submit", "work", "read", "operate", "admin"} }

func (a *app) tokenCommand() *cobra.Command {
	return commandGroup("token", "Make, list and revoke tokens of callers", a.tokenCreate(), a.tokenList(), a.tokenRevoke())
}

// noReason is the reason of a decision that takes nothing from anybody, where no reason is given.
const noReason = "none given"

// tokenScope is the namespace of a token: that of the settings, or all.
type tokenScope struct{ all bool }

func (s *tokenScope) flag(c *cobra.Command) {
	c.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "a token of all namespaces; overrides --namespace")
}

func (s *tokenScope) namespace(a *app) string {
	if s.all {
		return wire.AllNamespaces
	}
	return a.namespace
}

func (a *app) tokenCreate() *cobra.Command {
	var scope tokenScope
	var r client.TokenRequest
	var expires, keepOld sinceValue
	var actor string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token for a caller and print its secret, once",
		Long: `Makes a token of one namespace and prints its secret to standard output. The server stores only a digest of the secret, so
it is never shown again. Attempts and reports belong to the token's name: a token that is replaced with --rotate continues its
attempts.

  submit   open, report and abandon flights, and their sessions
  work     report and abandon flights that others opened
  read     read flights, receipts, events and metrics
  operate  resolve, cancel, retry, redact, free and import
  admin    tokens, namespaces and the audit log`,
		Example: `  flightd token create billing --namespace billing > billing.token
  flightd token create console --verbs read,operate --expires 90d
  flightd token create billing --namespace billing --rotate --keep-old-for 1h > billing.token`,
		Args: exactArgs(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keepOld != 0 && !r.Rotate {
				return usageError("--keep-old-for needs --rotate")
			}
			for _, verb := range r.Verbs {
				if err := newChoice(verbWords()...).Set(verb); err != nil {
					return usageError("--verbs: %v", err)
				}
			}
			r.Name, r.Namespace, r.Reason = args[0], scope.namespace(a), orDefault(r.Reason, noReason)
			r.ExpiresInMS, r.KeepOldMS = time.Duration(expires).Milliseconds(), time.Duration(keepOld).Milliseconds()
			if r.Rotate && !cmd.Flags().Changed("verbs") {
				r.Verbs = nil // those of the old token
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return a.createToken(cmd.Context(), c, r) }, client.WithActor(actorName(actor)))
		},
	}
	flags := c.Flags()
	scope.flag(c)
	flags.StringSliceVar(&r.Verbs, "verbs", []string{"submit", "read"}, "what it allows: "+strings.Join(verbWords(), ", "))
	flags.Var(&expires, "expires", "validity, such as 90d; 0: until it is revoked")
	flags.BoolVar(&r.Rotate, "rotate", false, "replace the secret of an existing token; its verbs stay unless --verbs is given")
	flags.Var(&keepOld, "keep-old-for", "with --rotate: how long the old secret stays valid, such as 1h")
	flags.StringVar(&r.Reason, "reason", "", "the reason, for the audit log")
	flags.StringVar(&actor, "actor", "", "name of the person who decides; recorded (your user name)")
	return c
}

func (a *app) createToken(ctx context.Context, c *client.Client, r client.TokenRequest) error {
	made, err := c.CreateToken(ctx, r)
	var unavailable *client.Unavailable
	if errors.As(err, &unavailable) {
		return &exitError{code: exitUnreachable, err: err, hint: "the token may have been made, and nobody knows its secret; repeat the command, with --rotate if it exists"}
	}
	if err != nil {
		return err
	}
	if a.format == "json" || a.format == "yaml" {
		return a.printData(made)
	}
	a.say("token %s of %s, which may %s, %s; its secret is not shown again", made.Name, namespaceText(made.Namespace), strings.Join(made.Verbs, ", "), expiryText(made.ExpiresAt.Time))
	_, err = fmt.Fprintln(a.out, made.Token)
	return err
}

func (a *app) tokenList() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List tokens of all namespaces, without their secrets",
		Example: "  flightd token ls",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				all, err := c.Tokens(cmd.Context())
				if err != nil {
					return err
				}
				rows, ids := [][]string{}, []string{}
				for _, t := range all {
					rows = append(rows, []string{t.Namespace, t.Name, strings.Join(t.Verbs, ","), formatTime(t.CreatedAt.Time), expiryText(t.ExpiresAt.Time), strconv.Itoa(t.Secrets)})
					ids = append(ids, t.Namespace+"/"+t.Name)
				}
				return a.printList([]string{"NAMESPACE", "NAME", "VERBS", "CREATED", "EXPIRES", "SECRETS"}, rows, ids, wire.TokenList{Tokens: all})
			})
		},
	}
}

func (a *app) tokenRevoke() *cobra.Command {
	var scope tokenScope
	var o operatorFlags
	c := &cobra.Command{
		Use:   "revoke NAME",
		Short: "End a token at once; reports of its attempts are still taken from other tokens of the namespace",
		Example: `  flightd token revoke billing --namespace billing --reason 'it was in a log'
  flightd token revoke admin -A --reason 'Kim has left'`,
		Args: exactArgs(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			namespace := scope.namespace(a)
			if err := a.confirm(false, "revoke the token %s of %s?", args[0], namespaceText(namespace)); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				if err := c.RevokeToken(cmd.Context(), namespace, args[0], o.reason); err != nil {
					return err
				}
				return a.printDone("revoked", namespace, args[0])
			}, client.WithActor(actorName(o.actor)))
		},
	}
	scope.flag(c)
	o.flags(c.Flags())
	return c
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		Short:   "Show the name, the namespace and the rights of your token",
		Example: "  FLIGHTD_TOKEN=fltd_… flightd whoami",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				me, err := c.WhoAmI(cmd.Context())
				if err != nil {
					return err
				}
				return a.printList([]string{"NAME", "NAMESPACE", "VERBS", "EXPIRES"},
					[][]string{{orDefault(me.Name, "(no token is demanded)"), me.Namespace, strings.Join(me.Verbs, ","), expiryText(me.ExpiresAt.Time)}}, []string{me.Name}, me)
			})
		},
	}
}

// namespaceText names a namespace for people.
func namespaceText(namespace string) string {
	if namespace == wire.AllNamespaces {
		return "all namespaces"
	}
	return "namespace " + namespace
}

// expiryText describes when a token ends.
func expiryText(at time.Time) string {
	if at.IsZero() {
		return "never expires"
	}
	return "expires " + formatTime(at)
}

// printList prints a list in the format of -o.
func (a *app) printList(heading []string, rows [][]string, ids []string, data any) error {
	switch a.format {
	case "table":
		return writeTable(a.out, heading, rows)
	case "id":
		for _, id := range ids {
			if _, err := fmt.Fprintln(a.out, id); err != nil {
				return err
			}
		}
		return nil
	}
	return a.printData(data)
}

// printDone confirms a decision about a named thing: to standard error, and in the format of -o.
func (a *app) printDone(what, namespace, name string) error {
	switch a.format {
	case "table":
		a.say("%s %s of %s", what, name, namespaceText(namespace))
		return nil
	case "id":
		_, err := fmt.Fprintln(a.out, name)
		return err
	}
	return a.printData(map[string]string{"done": what, "namespace": namespace, "name": name})
}
