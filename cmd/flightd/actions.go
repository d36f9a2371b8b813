package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

func newActionsCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("actions", "Declare, list and show the policies of actions", newActionsApplyCommand(a), newActionsListCommand(a), newActionsShowCommand(a), newActionsRemoveCommand(a))
}

// actionFile is one document of a file of actions. Package yaml reads the names of the fields.
type actionFile struct {
	Action         string      `yaml:"action"`
	Recovery       string      `yaml:"recovery,omitempty"`
	ProviderWindow span        `yaml:"provider_window,omitempty"`
	Retry          *retryFile  `yaml:"retry,omitempty"`
	Timeout        span        `yaml:"timeout,omitempty"`
	SettleDelay    span        `yaml:"settle_delay,omitempty"`
	VerifyAttempts int64       `yaml:"verify_attempts,omitempty"`
	Lookup         bool        `yaml:"lookup,omitempty"`
	Retention      string      `yaml:"retention,omitempty"`
	Lane           *actionLane `yaml:"lane,omitempty"`
}

type retryFile struct {
	Attempts int64 `yaml:"attempts,omitempty"`
	First    span  `yaml:"first,omitempty"`
	Max      span  `yaml:"max,omitempty"`
	Within   span  `yaml:"within,omitempty"`
}

type actionLane struct {
	By    string `yaml:"by,omitempty"`
	Limit int64  `yaml:"limit,omitempty"`
}

// span is a duration in milliseconds, as in 24h, 7d or 500ms.
type span int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		d, err = wire.ParseRetention(string(text))
	}
	if err != nil || d < 0 || d > 0 && d < time.Millisecond {
		return fmt.Errorf("%q is not a duration such as 30s, 24h or 7d", text)
	}
	*s = span(d.Milliseconds())
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (s span) MarshalText() ([]byte, error) { return []byte(wire.SpanText(int64(s))), nil }

// policy returns the document in the terms of the API.
func (f *actionFile) policy() client.ActionPolicy {
	p := client.ActionPolicy{Policy: wire.Policy{Recovery: f.Recovery, ProviderWindowMS: int64(f.ProviderWindow), AttemptTimeoutMS: int64(f.Timeout), SettleMS: int64(f.SettleDelay),
		VerifyAttempts: f.VerifyAttempts, Lookup: f.Lookup, Retention: f.Retention}}
	if r := f.Retry; r != nil {
		p.Retry = &wire.Retry{Attempts: cmp.Or(r.Attempts, int64(wire.DefaultRetry.Attempts)), FirstMS: int64(r.First), MaxMS: int64(r.Max), WithinMS: int64(r.Within)}
	}
	if f.Lane != nil {
		p.Lane = &wire.LaneRule{By: f.Lane.By, Limit: f.Lane.Limit}
	}
	return p
}

// actionFileOf returns the document of an action as apply reads it.
func actionFileOf(act *client.Action) *actionFile {
	f := &actionFile{Action: act.Name, Recovery: act.Recovery, ProviderWindow: span(act.ProviderWindowMS), Timeout: span(act.AttemptTimeoutMS), SettleDelay: span(act.SettleMS),
		VerifyAttempts: act.VerifyAttempts, Lookup: act.Lookup, Retention: act.Retention}
	if r := act.Retry; r != nil {
		f.Retry = &retryFile{r.Attempts, span(r.FirstMS), span(r.MaxMS), span(r.WithinMS)}
	}
	if l := act.Lane; l != nil {
		f.Lane = &actionLane{l.By, l.Limit}
	}
	return f
}

// fileFields are the fields of the API as a file has them.
var fileFields = strings.NewReplacer("/provider_window_ms", "provider_window", "/attempt_timeout_ms", "timeout", "/settle_ms", "settle_delay", "first_ms", "first", "max_ms", "max", "within_ms", "within", "/", ".")

// readActions reads the documents of a file. It rejects a field that it does not know, with its line, and a policy that no job can have.
func readActions(a *cli.App, name string) ([]actionFile, error) {
	data, err := cli.ReadFile(a, name, 1<<20)
	if err != nil {
		return nil, err
	}
	var all []actionFile
	for in := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()); ; {
		var f actionFile
		err := in.Decode(&f)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, cli.UsageError("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
		}
		if f == (actionFile{}) { // a document without content
			continue
		}
		p := f.policy()
		bad := wire.CheckName(f.Action, wire.FieldError{Pointer: "/action"})
		if bad == nil {
			bad = p.Check()
		}
		if bad != nil {
			where := strings.TrimPrefix(fileFields.Replace(bad.Pointer), ".")
			return nil, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: action %s: %s: %s", name, cmp.Or(f.Action, "without a name"), where, fileFields.Replace(bad.Detail)), Hint: bad.Hint}
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, cli.UsageError("%s: it has no action", name)
	}
	return all, nil
}

func newActionsApplyCommand(a *cli.App) *cobra.Command {
	var r client.ActionRequest
	var actor string
	c := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Declare the policies of the actions in YAML files; the same file again changes nothing",
		Long: `Makes each document of the files that of its action. A field that is absent has its default. Jobs whose submission declares no
policy, no retries or no lane get those of the document. A change concerns new jobs only. All files are checked before anything
is changed.

  action: charge
  recovery: resend             # hold (the default), resend or verify
  provider_window: 24h         # with resend: how long the provider knows an idempotency key; absent: always
  retry: { attempts: 8, first: 1s, max: 1m, within: 20h }
  timeout: 30s                 # of an attempt; absent: none
  settle_delay: 5s             # with verify: how long after an attempt the provider is asked
  verify_attempts: 8           # with verify: look-ups without a result, until a person is needed
  retention: 30d               # of the receipt
  lane: { by: /customer, limit: 1 }    # the lane of a job is what its input has there

A file may have several documents, with --- between them. - reads standard input.`,
		Example: `  flightd actions apply charge.yaml
  flightd actions apply --dry-run actions/*.yaml
  flightd actions show charge | sed 's/attempts: 8/attempts: 20/' | flightd actions apply -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError("name a file; - reads standard input")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []actionFile
			named := map[string]string{}
			for _, name := range args {
				files, err := readActions(a, name)
				if err != nil {
					return err
				}
				for _, f := range files {
					if other, twice := named[f.Action]; twice {
						return cli.UsageError("the action %s is in %s and in %s; leave one", f.Action, other, name)
					}
					named[f.Action] = name
				}
				all = append(all, files...)
			}
			r.Reason = cmp.Or(r.Reason, noReason)
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return applyActions(cmd.Context(), a, c, all, r) }, client.WithActor(cli.ActorName(actor)))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&r.DryRun, "dry-run", false, "say what would change, and change nothing")
	flags.StringVar(&r.Reason, "reason", "", "the reason, for the audit log")
	flags.StringVar(&actor, "actor", "", "name of the person who decides; recorded (your user name)")
	return c
}

// applyActions writes the documents in their order and prints what became of each. If the process dies, those before are written; the
// same files again finish it.
func applyActions(ctx context.Context, a *cli.App, c *client.Client, all []actionFile, r client.ActionRequest) error {
	type applied struct {
		Action string `json:"action"`
		*client.ActionAnswer
	}
	done, ids := []applied{}, []string{}
	var failed error
	for i := range all {
		r.ActionPolicy = all[i].policy()
		answer, err := c.PutAction(ctx, all[i].Action, r)
		if err != nil {
			failed = fmt.Errorf("action %s: %w", all[i].Action, err)
			break
		}
		done, ids = append(done, applied{all[i].Action, answer}), append(ids, all[i].Action)
	}
	err := a.Print(done, func(b *strings.Builder) {
		for _, d := range done {
			status := d.Status
			if r.DryRun && status != wire.ActionUnchanged {
				status = "would be " + status
			}
			fmt.Fprintf(b, "%s: %s\n", d.Action, status)
			for _, field := range d.Differences {
				fmt.Fprintf(b, "  %s: %s, was %s\n", field.Field, cmp.Or(field.Own, "none"), cmp.Or(field.Document, "none"))
			}
		}
	}, ids...)
	return cmp.Or(failed, err)
}

func newActionsListCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the actions of the namespace that have a document",
		Example: "  flightd actions ls",
		Args:    cli.ExactArgs(0, "no arguments"),
		RunE: a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
			all, err := c.Actions(ctx)
			if err != nil {
				return err
			}
			rows, ids := [][]string{}, []string{}
			for i := range all {
				act := &all[i]
				lane, attempts := "", ""
				if act.Lane != nil {
					lane = fmt.Sprintf("%s, %d at once", act.Lane.By, max(1, act.Lane.Limit))
				}
				if act.Retry != nil {
					attempts = fmt.Sprint(act.Retry.Attempts)
				}
				rows = append(rows, []string{act.Name, act.Recovery, wire.SpanText(act.ProviderWindowMS), attempts, wire.SpanText(act.AttemptTimeoutMS), lane, cli.FormatTime(act.ChangedAt.Time), act.ChangedBy})
				ids = append(ids, act.Name)
			}
			return a.PrintList([]string{"ACTION", "RECOVERY", "WINDOW", "ATTEMPTS", "TIMEOUT", "LANE", "CHANGED", "BY"}, rows, ids, map[string]any{"actions": all})
		}),
	}
}

func newActionsShowCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Show the policy of an action, as apply reads it",
		Example: "  flightd actions show charge > charge.yaml",
		Args:    cli.ExactArgs(1, "an action"),
		RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			act, err := c.Action(ctx, args[0])
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(actionFileOf(act))
			if err != nil {
				return err
			}
			return a.Print(act, func(b *strings.Builder) {
				fmt.Fprintf(b, "# changed %s by %s: %s\n%s", cli.FormatTime(act.ChangedAt.Time), cli.OneLine(act.ChangedBy), cli.OneLine(act.Reason), text)
			}, act.Name)
		}),
	}
}

func newActionsRemoveCommand(a *cli.App) *cobra.Command {
	return a.Decision(&cobra.Command{
		Use:     "rm NAME",
		Short:   "Remove the document of an action; its jobs keep their policies",
		Example: "  flightd actions rm charge --reason 'nobody works it any more'",
		Args:    cli.ExactArgs(1, "an action"),
	}, func(args []string) error { return a.Confirm(false, "remove the policy of the action %s?", args[0]) }, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		if err := c.DeleteAction(ctx, args[0], reason); err != nil {
			return err
		}
		return a.PrintDone("removed the policy", a.Namespace, args[0], "removed the policy of the action "+args[0])
	})
}
