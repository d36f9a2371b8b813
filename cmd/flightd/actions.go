package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
	"github.com/flightd/flightd/saga"
)

var actionTable = cli.Table[client.Action]{
	Heading: []string{"ACTION", "RECOVERY", "WINDOW", "APPROVAL", "ATTEMPTS", "TIMEOUT", "LANE", "CHANGED", "BY"},
	Row: func(act *client.Action) (string, []string) {
		lane, attempts := "", ""
		if act.Lane != nil {
			lane = fmt.Sprintf("%s, %d at once", act.Lane.By, max(1, act.Lane.Limit))
		}
		if act.Retry != nil {
			attempts = fmt.Sprint(act.Retry.Attempts)
		}
		return act.Name, []string{act.Name, act.Recovery, wire.SpanText(act.ProviderWindowMS), act.Approval.Text(), attempts,
			wire.SpanText(act.AttemptTimeoutMS), lane, cli.FormatTime(act.ChangedAt.Time), act.ChangedBy}
	},
}

func newActionsCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("actions", "Declare, list and show the policies of actions",
		newActionsApplyCommand(a),
		&cobra.Command{
			Use:     "ls",
			Short:   "List the actions of the namespace that have a document",
			Example: "  flightd actions ls",
			RunE: actionTable.List(a, func(ctx context.Context, c *client.Client, _ []string) ([]client.Action, any, error) {
				all, err := c.Actions(ctx)
				return all, map[string]any{"actions": all}, err
			}),
		},
		&cobra.Command{
			Use:     "show NAME",
			Short:   "Show the policy of an action, as apply reads it",
			Example: "  flightd actions show charge > charge.yaml",
			Args:    cli.ExactArgs(1, "an action"),
			RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
				act, err := c.Action(ctx, args[0])
				if err != nil {
					return err
				}
				text, err := fileText(act)
				if err != nil {
					return err
				}
				return a.Print(act, cli.Text("# changed %s\n%s", cli.ChangeText(act.ChangedAt.Time, act.ChangedBy, act.Reason), text), act.Name)
			}),
		},
		a.Decision(&cobra.Command{
			Use:     "rm NAME",
			Short:   "Remove the document of an action; its jobs keep their policies",
			Example: "  flightd actions rm charge --reason 'nobody works it any more'",
			Args:    cli.ExactArgs(1, "an action"),
		}, func(args []string) error {
			return a.Confirm(false, "remove the policy of the action %s?", args[0])
		}, func(ctx context.Context, c *client.Client, args []string, reason string) error {
			if err := c.DeleteAction(ctx, args[0], reason); err != nil {
				return err
			}
			return a.PrintDone("removed the policy", a.Namespace, args[0], "removed the policy of the action "+args[0])
		}))
}

// actionDocument is one document of an actions file. It embeds the type of the API, so a file accepts every field of a policy and rejects
// all others.
type actionDocument struct {
	Action string `json:"action"`
	client.ActionPolicy
}

// fileFields maps the field names of a file to the fields of a document, at any depth.
var fileFields = map[string]reflect.StructField{}

func init() { addFileFields(reflect.TypeFor[actionDocument]()) }

func addFileFields(t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.Anonymous {
			fileFields[fileField(apiField(f))] = f
		}
		addFileFields(f.Type)
	}
}

// apiField returns the name of a field in the API. If the name ends with _ms, the file has a duration instead.
func apiField(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// fileField returns the name that a field of the API has in a file.
func fileField(name string) string {
	switch name {
	case "attempt_timeout_ms":
		return "timeout"
	case "settle_ms":
		return "settle_delay"
	}
	return strings.TrimSuffix(name, "_ms")
}

// fieldInMS matches the names of API fields in milliseconds, which have other names in a file.
var fieldInMS = regexp.MustCompile(`\w+_ms\b`)

// milliseconds converts a duration in a file, such as 24h, 7d or 500ms.
func milliseconds(v any) (int64, bool) {
	text, _ := v.(string)
	d, err := wire.ParseDuration(text)
	return d.Milliseconds(), err == nil && d >= 0 && d%time.Millisecond == 0
}

// convertFile converts an object of a file to an object of the API, in place. Its error names a field of the file.
func convertFile(object map[string]any, pointer string) *wire.Invalid {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		f, known := fileFields[name]
		v, field, at := object[name], apiField(f), pointer+"/"+name
		inner, isObject := v.(map[string]any)
		switch {
		case !known:
			bad := wire.BadField(at, "unknown field")
			bad.Hint = cli.DidYouMean(cli.Nearest(name, slices.Sorted(maps.Keys(fileFields))))
			return bad
		case v == nil:
			return wire.BadField(at, "has no value; remove the line or write a value")
		case isObject:
			if bad := convertFile(inner, at); bad != nil {
				return bad
			}
		case fieldInMS.MatchString(field):
			ms, ok := milliseconds(v)
			if !ok {
				return wire.BadField(at, "%v is not a duration such as 30s, 24h or 7d", v)
			}
			v = ms
		}
		delete(object, name)
		object[field] = v
	}
	return nil
}

// parseAction reads a document of a file.
func parseAction(doc saga.YAMLDocument) (f actionDocument, bad *wire.Invalid) {
	var object map[string]any
	in := json.NewDecoder(bytes.NewReader(doc.JSON))
	in.UseNumber()
	if in.Decode(&object) != nil {
		return f, wire.BadField("", "a document begins with the line action: NAME")
	}
	f.Action, _ = object["action"].(string) // for an error
	if bad = convertFile(object, ""); bad != nil {
		return f, bad
	}
	if retry, ok := object["retry"].(map[string]any); ok && retry["attempts"] == nil {
		retry["attempts"] = wire.DefaultRetry.Attempts
	}
	data, err := json.Marshal(object)
	if err != nil {
		return f, wire.BadField("", "%v", err)
	}
	decoded, bad := wire.Decode[actionDocument](data)
	if bad == nil {
		f, bad = decoded, wire.CheckName(decoded.Action, wire.FieldError{Pointer: "/action"})
	}
	if bad == nil {
		bad = f.Check()
	}
	return f, bad
}

// fileText returns the document of an action in the form that apply reads.
func fileText(act *client.Action) (string, error) {
	var object yaml.MapSlice
	err := yaml.UnmarshalWithOptions(strictjson.Append(nil, &actionDocument{act.Name, act.ActionPolicy}), &object, yaml.UseOrderedMap())
	if err != nil {
		return "", err
	}
	convertAction(object)
	order := []any{"action", "recovery", "provider_window", "approval", "retry", "timeout"} // then the others
	slices.SortStableFunc(object, func(x, y yaml.MapItem) int {
		return cmp.Compare(uint(slices.Index(order, x.Key)), uint(slices.Index(order, y.Key)))
	})
	text, err := yaml.Marshal(object)
	return string(text), err
}

// convertAction converts an object of the API to an object of a file, in place.
func convertAction(object yaml.MapSlice) {
	for i, item := range object {
		name := item.Key.(string)
		object[i].Key = fileField(name)
		switch v := item.Value.(type) {
		case yaml.MapSlice:
			convertAction(v)
		case map[string]any: // an empty object
		case uint64:
			if fieldInMS.MatchString(name) {
				object[i].Value = wire.SpanText(int64(v))
			}
		}
	}
}

// readActions reads the documents of a file. It rejects unknown fields and invalid policies with their line.
func readActions(a *cli.App, name string) (all []actionDocument, err error) {
	data, err := cli.ReadFile(a, name, 1<<20)
	if err != nil {
		return nil, err
	}
	docs, err := saga.YAMLDocuments(data, func(pointer string) bool {
		f, ok := fileFields[path.Base(pointer)]
		return ok && f.Type.Kind() == reflect.String
	})
	if bad, ok := errors.AsType[*wire.Invalid](err); ok {
		return nil, cli.UsageError("%s: %s", name, bad.Detail)
	}
	if err != nil {
		return nil, cli.UsageError("%s: %w", name, err)
	}
	for _, doc := range docs {
		f, bad := parseAction(doc)
		if bad != nil {
			file := fieldInMS.ReplaceAllStringFunc(bad.Pointer, fileField)
			at, where := doc.Places.Of(file), strings.ReplaceAll(strings.TrimPrefix(file, "/"), "/", ".")
			return nil, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s:%d:%d: action %s: %s: %s", name, at.Line, at.Column, cmp.Or(f.Action, "without a name"),
				cmp.Or(where, "document"), fieldInMS.ReplaceAllStringFunc(bad.Detail, fileField)), Hint: bad.Hint}
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
	var all []actionDocument
	c := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Declare the policies of the actions in YAML files; the same file again changes nothing",
		Long: `Makes each document of the files that of its action. A field that is absent has its default. Jobs whose submission declares no
policy, no retries or no lane get those of the document. A change concerns new jobs only. All files are checked before anything
is changed.

  action: charge
  recovery: resend             # hold (the default), resend or verify
  provider_window: 24h         # with resend: how long the provider knows an idempotency key; absent: always
  approval: { expires: 24h }   # a person approves each job first; {} never expires; absent: none
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
	}
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "say what would change, and change nothing")
	return a.Change(c, func(args []string) error {
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
		return nil
	}, func(ctx context.Context, c *client.Client, _ []string, reason string) error {
		r.Reason = reason
		return applyActions(ctx, a, c, all, r)
	})
}

// applyActions writes the documents in their order and prints what became of each. If the process dies, those before are written; the
// same files again finish it.
func applyActions(ctx context.Context, a *cli.App, c *client.Client, all []actionDocument, r client.ActionRequest) error {
	type applied struct {
		Action string `json:"action"`
		*client.ActionAnswer
	}
	done, ids := []applied{}, []string{}
	var failed error
	for i := range all {
		r.ActionPolicy = all[i].ActionPolicy
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
