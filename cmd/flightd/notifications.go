package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

var notifyTable = cli.Table[client.Notify]{
	Heading: []string{"NAME", "URL", "EVENTS", "NAMESPACES", "FAILING"},
	Row: func(t *client.Notify) (string, []string) {
		return t.Name, []string{t.Name, t.URL, cmp.Or(strings.Join(t.Events, ","), "all"), cmp.Or(strings.Join(t.Namespaces, ","), "all"), failingText(t)}
	},
}

// failingText describes since when and why a target does not answer.
func failingText(t *client.Notify) string {
	if t.Failing == nil {
		return ""
	}
	return "since " + cli.FormatTime(t.Failing.Since.Time) + ": " + cli.OneLine(t.Failing.Error)
}

func newNotifyCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("notify", "Post doubts, overlaps and approvals to URLs, such as those of a chat",
		newNotifyPutCommand(a),
		&cobra.Command{
			Use:     "ls",
			Short:   "List the targets of notifications, and those that do not answer",
			Example: "  flightd notify ls",
			RunE: notifyTable.List(a, func(ctx context.Context, c *client.Client, _ []string) ([]client.Notify, any, error) {
				all, err := c.NotifyTargets(ctx)
				return all, map[string]any{"targets": all}, err
			}),
		},
		&cobra.Command{
			Use:     "show NAME",
			Short:   "Show a target of notifications, without its secret",
			Example: "  flightd notify show oncall",
			Args:    cli.ExactArgs(1, "a target"),
			RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
				t, err := c.NotifyTarget(ctx, args[0])
				if err != nil {
					return err
				}
				return a.Print(t, func(b *strings.Builder) { writeNotifyTarget(b, t) }, t.Name)
			}),
		},
		&cobra.Command{
			Use:     "test NAME",
			Short:   "Post a test message to a target, once, and say what it answered",
			Example: "  flightd notify test oncall",
			Args:    cli.ExactArgs(1, "a target"),
			RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
				answer, err := c.TestNotifyTarget(ctx, args[0])
				if err != nil {
					return err
				}
				text := ""
				if answer.Error == "" {
					text = fmt.Sprintf("%s has taken %s: it answered %d after %s\n",
						args[0], answer.ID, answer.Status, time.Duration(answer.TookMS)*time.Millisecond)
				}
				err = a.Print(answer, cli.Text("%s", text), answer.ID)
				if err == nil && answer.Error != "" {
					return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s has not taken the message: %s", args[0], cli.OneLine(answer.Error)),
						Hint: "check the URL; a private address needs the setting notify_private at the server"}
				}
				return err
			}),
		},
		a.Decision(&cobra.Command{
			Use:     "rm NAME",
			Short:   "Remove a target of notifications",
			Example: "  flightd notify rm oncall --reason 'the channel is closed'",
			Args:    cli.ExactArgs(1, "a target"),
		}, func(args []string) error { return a.Confirm(false, "remove the target %s?", args[0]) }, func(ctx context.Context, c *client.Client, args []string, reason string) error {
			if err := c.DeleteNotifyTarget(ctx, args[0], reason); err != nil {
				return err
			}
			return a.PrintDone("removed the target", a.Namespace, args[0], "removed the target "+args[0])
		}))
}

func newNotifyPutCommand(a *cli.App) *cobra.Command {
	var r client.NotifyRequest
	var secretFile string
	var redact []string
	var age time.Duration
	c := &cobra.Command{
		Use:   "put NAME",
		Short: "Make or replace a target of notifications; the secret of a new one is printed once",
		Long: `The server posts a message to the URL when a flight or a step of a saga is in doubt, an effect was reported twice, an approval
waits, a report was quarantined, or the oldest ready job of a queue is too old. Messages are signed by Standard Webhooks
(https://www.standardwebhooks.com) and repeated under the same webhook-id until the URL answers 2xx. Slack, Teams and
Mattermost show them. A new target gets what happens from then on. The command replaces all settings but the secret.

Inputs are in the messages. --redact removes parts of them: an action, or * for all, and a JSON pointer. A * in the pointer is
any member or element, and an empty pointer the whole input.`,
		Example: `  flightd notify put oncall --url https://hooks.slack.com/services/T0/B0/x --redact 'charge=/card/number' --reason 'on-call channel'
  flightd notify put audit --url https://audit.example.com/in --event flight.overlap --secret-file whsec.txt
  flightd notify test oncall`,
		Args: cli.ExactArgs(1, "a name"),
	}
	flags := c.Flags()
	flags.StringVar(&r.URL, "url", "", "where messages are posted; only scheme and host are shown later")
	flags.StringVar(&secretFile, "secret-file", "", "file with the secret of Standard Webhooks, whsec_ and base64; without it, that of the target, or a random one")
	flags.StringSliceVar(&r.Events, "event", nil, "only these events: "+strings.Join(wire.NotifyEvents(), ", "))
	flags.StringSliceVar(&r.Namespaces, "only", nil, "only these namespaces")
	flags.StringArrayVar(&redact, "redact", nil, "ACTION=/pointer to remove from the inputs of an action; may be repeated")
	flags.StringVar(&r.Link, "link", "", "URL of the server in links (that of public_url)")
	cli.DurationVar(flags, &age, "queue-age", wire.DefaultQueueAge*time.Millisecond, "age of the oldest ready job from which a queue is too old")
	return a.Change(c, func([]string) error {
		if r.URL == "" {
			return cli.UsageError("name the URL with --url")
		}
		if secretFile != "" {
			secret, err := cli.ReadFile(a, secretFile, 1024)
			if err != nil {
				return err
			}
			r.Secret = strings.TrimSpace(string(secret))
		}
		for _, rule := range redact {
			action, pointer, ok := strings.Cut(rule, "=")
			if !ok {
				return cli.UsageError("--redact %s: write ACTION=/pointer", rule)
			}
			r.Redact = append(r.Redact, client.NotifyMask{Action: action, Pointers: []string{pointer}})
		}
		return nil
	}, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		r.QueueAgeMS, r.Reason = age.Milliseconds(), reason
		made, err := c.PutNotifyTarget(ctx, args[0], r)
		if err != nil {
			return err
		}
		return a.Print(made, func(b *strings.Builder) {
			fmt.Fprintf(b, "%s: notified at %s; try it with flightd notify test %s\n", made.Name, made.URL, made.Name)
			if made.Secret != "" {
				fmt.Fprintf(b, "secret, which is not shown again: %s\n", made.Secret)
			}
		}, made.Name)
	})
}

func writeNotifyTarget(b *strings.Builder, t *client.Notify) {
	fields := [][]string{{"target", t.Name}, {"url", t.URL}, {"events", cmp.Or(strings.Join(t.Events, ", "), "all")},
		{"namespaces", cmp.Or(strings.Join(t.Namespaces, ", "), "all")}, {"link", cli.OneLine(t.Link)},
		{"queue age", wire.SpanText(cmp.Or(t.QueueAgeMS, wire.DefaultQueueAge))}}
	for _, m := range t.Redact {
		fields = append(fields, []string{"redact", m.Action + ": " + strings.Join(m.Pointers, ", ")})
	}
	fields = append(fields, []string{"changed", cli.ChangeText(t.ChangedAt.Time, t.ChangedBy, t.Reason)}, []string{"failing", failingText(t)})
	for _, f := range fields {
		if f[1] != "" {
			fmt.Fprintf(b, "%-11s %s\n", f[0], f[1])
		}
	}
}
