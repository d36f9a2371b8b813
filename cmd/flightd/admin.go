package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/durable"
)

// verbWords are the verbs that a token may have.
func verbWords() []string { return auth.AllVerbs.Names() }

var tokenTable = cli.Table[client.Token]{
	Heading: []string{"NAMESPACE", "NAME", "VERBS", "CREATED", "EXPIRES", "SECRETS"},
	Row: func(t *client.Token) (string, []string) {
		expires := cli.ExpiryText(t.ExpiresAt.Time)
		if t.Secrets == 0 && !t.ExpiresAt.IsZero() {
			expires = "expired " + cli.FormatTime(t.ExpiresAt.Time)
		}
		return t.Namespace + "/" + t.Name, []string{t.Namespace, t.Name, strings.Join(t.Verbs, ","),
			cli.FormatTime(t.CreatedAt.Time), expires, strconv.Itoa(t.Secrets)}
	},
}

func newTokenCommand(a *cli.App) *cobra.Command {
	var scope tokenScope
	revoke := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke a token at once; reports of its attempts are still accepted from other tokens of the namespace",
		Example: `  flightd token revoke billing --namespace billing --reason 'it was in a log'
  flightd token revoke admin -A --reason 'Kim has left' --yes`,
		Args: cli.ExactArgs(1, "a name"),
	}
	scope.flag(revoke)
	return cli.CommandGroup("token", "Make, list and revoke tokens of callers",
		newTokenCreateCommand(a),
		acceptAllNamespaces(&cobra.Command{
			Use:     "ls",
			Short:   "List the tokens of all namespaces, or of the namespace of your token, without their secrets",
			Example: "  flightd token ls",
			RunE: tokenTable.List(a, func(ctx context.Context, c *client.Client, _ []string) ([]client.Token, any, error) {
				all, err := c.Tokens(ctx)
				return all, wire.TokenList{Tokens: all}, err
			}),
		}),
		a.Decision(revoke, func(args []string) error {
			return a.Confirm(true, "revoke the token %s of %s?", args[0], cli.NamespaceText(scope.namespace(a)))
		}, func(ctx context.Context, c *client.Client, args []string, reason string) error {
			namespace := scope.namespace(a)
			notYet, err := c.RevokeToken(ctx, namespace, args[0], reason)
			if err != nil {
				return err
			}
			if len(notYet) > 0 {
				a.Say("not reached: %s; they may answer stored receipts and events to this token for 60 s more", strings.Join(notYet, ", "))
			}
			return a.PrintDone("revoked", namespace, args[0], fmt.Sprintf("revoked the token %s of %s", args[0], cli.NamespaceText(namespace)))
		}))
}

// tokenScope is the namespace of a token: that of the settings, or all.
type tokenScope struct{ all bool }

func (s *tokenScope) flag(c *cobra.Command) {
	c.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "a token of all namespaces; overrides --namespace")
}

func (s *tokenScope) namespace(a *cli.App) string {
	if s.all {
		return wire.AllNamespaces
	}
	return a.Namespace
}

func newTokenCreateCommand(a *cli.App) *cobra.Command {
	var scope tokenScope
	var r client.TokenRequest
	var expires, keepOld time.Duration
	var out string
	var file *durable.File // for out
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token for a caller and print its secret, once",
		Long: `Creates a token of one namespace and prints its secret to standard output, or writes it to the file of --out, for its
owner alone. The server stores only a digest of the secret, so it is never shown again. --out replaces a file when the new
secret is complete; a shell empties the file after > first, and loses the old token if the command fails.

The secret ends with a dot and the namespace: clients use that namespace without another setting. Sessions belong to the
namespace and the name of the token: after --rotate, the new secret continues them.

  submit   open, report, verify and abandon flights, and their sessions
  work     report, verify and abandon flights that others opened, and their sessions
  read     read flights, receipts and events
  operate  resolve, cancel, retry, redact, free and import; the audit log
  admin    tokens, limits of namespaces and the audit log
  define   declare the policies of actions, as a worker does that brings one; operate may, too`,
		Example: `  flightd token create billing --namespace billing --out billing.token
  flightd token create console --verbs read,operate --expires 90d
  flightd token create billing --namespace billing --rotate --keep-old-for 1h --out billing.token`,
		Args: cli.ExactArgs(1, "a name"),
	}
	flags := c.Flags()
	scope.flag(c)
	flags.StringSliceVar(&r.Verbs, "verbs", []string{"submit", "read"}, "what it allows: "+strings.Join(verbWords(), ", "))
	cli.EndVar(flags, &expires, "expires", "end of its validity: a duration such as 90d, or a time; 0: until it is revoked", true)
	flags.BoolVar(&r.Rotate, "rotate", false, "replace the secret of an existing token; its verbs stay unless --verbs is given")
	cli.EndVar(flags, &keepOld, "keep-old-for", "with --rotate: how long the old secret stays valid, such as 1h; 0: it ends at once", false)
	flags.StringVar(&out, "out", "", "file that gets the secret, instead of standard output")
	a.Change(c, func([]string) error {
		if keepOld != 0 && !r.Rotate {
			return cli.UsageError("--keep-old-for needs --rotate")
		}
		for _, verb := range r.Verbs {
			if err := cli.NewChoice(verbWords()...).Set(verb); err != nil {
				return cli.UsageError("--verbs: %v", err)
			}
		}
		if out == "" {
			return nil
		}
		if info, err := os.Stat(out); err == nil && info.IsDir() {
			return cli.UsageError("--out %s is a directory; name a file", out)
		}
		var err error
		if file, err = durable.Begin(out); err != nil { // before the request: nobody has the secret if it cannot be written afterwards
			return cli.UsageError("--out %s: %w", out, err)
		}
		return nil
	}, func(ctx context.Context, client *client.Client, args []string, reason string) error {
		r.Name, r.Namespace, r.Reason = args[0], scope.namespace(a), reason
		r.ExpiresInMS, r.KeepOldMS = expires.Milliseconds(), keepOld.Milliseconds()
		if r.Rotate && !flags.Changed("verbs") {
			r.Verbs = nil // those of the old token
		}
		return createToken(ctx, a, client, r, file, out)
	})
	create := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		defer func() {
			if file != nil {
				file.Discard()
			}
		}()
		return create(cmd, args)
	}
	return c
}

// createToken makes a token and prints its secret. If out is not empty, the secret goes to file, which is then renamed to
// out.
func createToken(ctx context.Context, a *cli.App, c *client.Client, r client.TokenRequest, file *durable.File, out string) error {
	made, err := c.CreateToken(ctx, r)
	if errors.As(err, new(*client.Unavailable)) {
		return &cli.Error{Code: cli.ExitUnreachable, Err: err, Hint: "the token may exist, and nobody knows its secret; repeat the command, and if the token exists, with --rotate"}
	}
	if r.Rotate && client.CodeOf(err) == wire.NotFound {
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("not_found: no token %s in %s", r.Name, cli.NamespaceText(r.Namespace)),
			Hint: "set -n NAMESPACE, or -A for a token of all namespaces; leave out --rotate to make the token"}
	}
	if err != nil {
		return err
	}
	about := fmt.Sprintf("token %s of %s, which may %s, %s", made.Name, cli.NamespaceText(made.Namespace), strings.Join(made.Verbs, ", "), cli.ExpiryText(made.ExpiresAt.Time))
	switch {
	case r.KeepOldMS > 0:
		about += "; older secrets end " + cli.FormatTime(time.Now().Add(time.Duration(r.KeepOldMS)*time.Millisecond))
	case r.Rotate:
		about += "; older secrets have ended"
	}
	defer sayOtherNamespaces(ctx, a, c, r)
	if file != nil {
		if err := file.Replace([]byte(made.Token + "\n")); err != nil {
			return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("--out %s: %w", out, err), Hint: "the token was made, and nobody knows its secret; repeat the command with --rotate"}
		}
		a.Say("%s; its secret is in %s", about, out)
		return nil
	}
	if a.Format == "json" || a.Format == "yaml" {
		return a.PrintData(made)
	}
	a.Say("%s; its secret is not shown again", about)
	_, err = fmt.Fprintln(a.Out, made.Token)
	return err
}

// sayOtherNamespaces says which other namespaces hold flights, because the token decides the key: a key of another namespace is
// another key. It says nothing to an operator of one namespace, who must not learn of the others.
func sayOtherNamespaces(ctx context.Context, a *cli.App, c *client.Client, r client.TokenRequest) {
	if r.Rotate || r.Namespace == wire.AllNamespaces {
		return
	}
	all, err := c.Namespaces(ctx)
	if err != nil {
		return // only a note is missing
	}
	var others []string
	for _, n := range all.Namespaces {
		if n.Stored > 0 && n.Name != r.Namespace && n.Name != wire.AllNamespaces {
			others = append(others, fmt.Sprintf("%s (%s)", n.Name, cli.Pluralize(int(n.Stored), "flight", "flights")))
		}
	}
	if len(others) > 0 {
		a.Say("other namespaces hold flights: %s; a key of theirs runs again in namespace %s, unless its receipt is there: see flightd namespace copy --help",
			strings.Join(others, ", "), r.Namespace)
	}
}

func newWhoamiCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		Short:   "Show the name, the namespace and the rights of your token",
		Example: "  FLIGHTD_TOKEN=fltd_… flightd whoami",
		RunE: a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
			me, err := c.WhoAmI(ctx)
			if err != nil {
				return err
			}
			return a.PrintList([]string{"NAME", "NAMESPACE", "VERBS", "EXPIRES"},
				[][]string{{cmp.Or(me.Name, "(no token is demanded)"), me.Namespace, strings.Join(me.Verbs, ","), cli.ExpiryText(me.ExpiresAt.Time)}}, []string{me.Name}, me)
		}),
	}
}

// maxAuditPage is the largest page that audit ls asks for.
const maxAuditPage = 100

var auditTable = cli.Table[wire.AuditEntry]{
	Heading: []string{"AT", "VERB", "NAMESPACE", "SUBJECT", "ACTOR", "REASON"},
	Row: func(e *wire.AuditEntry) (string, []string) {
		return e.Version, []string{cli.FormatTime(e.At.Time), e.Verb, e.Namespace, e.Subject, e.Actor, e.Reason}
	},
}

func newAuditCommand(a *cli.App) *cobra.Command {
	var limit int
	var verb string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the decisions of operators and administrators, the newest first",
		Example: `  flightd audit ls
  flightd audit ls --verb resolve --limit 1000 -o json`,
		PreRunE: func(*cobra.Command, []string) error { return checkLimit(limit) },
		RunE: auditTable.List(a, func(ctx context.Context, c *client.Client, _ []string) ([]wire.AuditEntry, any, error) {
			entries, next, err := cli.Pages(limit, maxAuditPage, "", func(before string, limit int) ([]wire.AuditEntry, string, error) {
				page, err := c.Audit(ctx, before, verb, limit)
				if err != nil {
					return nil, "", err
				}
				return page.Entries, page.Next, nil
			})
			if next != "" && (a.Format == "table" || a.Format == "id") {
				a.Say("there may be more; raise --limit to see them")
			}
			return entries, client.AuditPage{Entries: entries, Next: next}, err
		}),
	}
	c.Flags().IntVar(&limit, "limit", 100, "list at most this many")
	c.Flags().StringVar(&verb, "verb", "", "only this verb")
	return cli.CommandGroup("audit", "Show who decided what, when and why", acceptAllNamespaces(c))
}

// checkLimit rejects a --limit below 1.
func checkLimit(limit int) error {
	if limit < 1 {
		return cli.UsageError("--limit %d: at least 1", limit)
	}
	return nil
}
