package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// completionTimeout bounds how long a completion waits for keys from the server.
const completionTimeout = 700 * time.Millisecond

// maxCompletions bounds how many keys are offered.
const maxCompletions = 100

// completeAll sets the completion of every command and flag below cmd: keys for KEY-or-ID, the allowed words of a flag,
// and file names only for FILE. It also sets the arguments that a command takes by its usage line.
func completeAll(a *cli.App, cmd *cobra.Command) {
	if cmd.Args == nil && cmd.Runnable() {
		cmd.Args = cli.ArgsOf(cmd)
	}
	if cmd.ValidArgsFunction == nil && cmd.Args != nil && !cmd.HasSubCommands() {
		switch name := strings.TrimPrefix(cmd.CommandPath(), "flightd "); {
		case name == "work" || name == "submit":
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if at := cmd.ArgsLenAtDash(); at >= 0 && at < len(args) { // the words belong to the command of the worker; cobra appends a -- to args
					return nil, cobra.ShellCompDirectiveDefault
				}
				if len(args) > 0 && name == "submit" {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				words, directive := completeFrom(a, cmd, typed, actionNames)
				if len(args) > 0 { // cobra hides a -- before the word, which may be a file of the worker's command
					directive = cobra.ShellCompDirectiveDefault
				}
				return words, directive
			}
		case strings.Contains(cmd.Use, "KEY-or-ID"):
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				switch {
				case len(args) > 0:
					return nil, cobra.ShellCompDirectiveNoFileComp
				case strings.HasPrefix(name, "sagas "):
					return completeFrom(a, cmd, typed, func(ctx context.Context, c *client.Client) []string { return sagaKeys(ctx, a, c) })
				}
				return completeFrom(a, cmd, "", func(ctx context.Context, c *client.Client) []string {
					return matchingKeys(ctx, a, c, typed, strings.Fields(cmd.Annotations[statesAnnotation]))
				})
			}
		case strings.HasSuffix(cmd.Use, " FILE"), strings.Contains(cmd.Use, " DIRECTORY"):
			cmd.ValidArgsFunction = completeFile
		case !strings.Contains(cmd.Use, "--"):
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if words := flagWords(f); words != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, sub := range cmd.Commands() {
		completeAll(a, sub)
	}
}

// completeFile lets the shell offer files for the first argument.
func completeFile(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// flagWords returns the words that a flag takes, or nil if they are not known or name a file.
func flagWords(f *pflag.Flag) []string {
	if c, ok := f.Value.(*cli.Choice); ok {
		return c.Words
	}
	switch f.Name {
	case "output":
		return cli.Formats()
	case "state":
		return stateWords()
	case "kind":
		return kindWords()
	case "verbs":
		return verbWords()
	case "input", "file", "data", "receipt", "config", "token-file", "ca-file", "client-cert", "client-key", "tls-cert", "tls-key", "tls-client-ca", "etcd-cert", "etcd-key", "etcd-ca", "first-token-file":
		return nil
	}
	if f.NoOptDefVal != "" { // a boolean
		return nil
	}
	return []string{}
}

// statesAnnotation has the states in which a command applies, separated by spaces; without it, all.
const statesAnnotation = "states"

// actionNames returns the actions of the namespace with a document or jobs.
func actionNames(ctx context.Context, c *client.Client) (names []string) {
	documents, _ := c.Actions(ctx)
	for i := range documents {
		names = append(names, documents[i].Name)
	}
	queues, _ := c.Queues(ctx, false)
	for i := range queues {
		names = append(names, queues[i].Action)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sagaKeys returns the keys of sagas, newest first, without the command's namespace.
func sagaKeys(ctx context.Context, a *cli.App, c *client.Client) (keys []string) {
	page, err := c.ListSagas(ctx, client.SagaQuery{Limit: maxCompletions})
	if err != nil {
		return nil
	}
	for i := range page.Sagas {
		s := &page.Sagas[i]
		keys = append(keys, strings.TrimPrefix(s.Key, a.Namespace+"/")+"\t"+s.State)
	}
	return keys
}

// completeFrom asks a server for words and offers those that begin with the typed text. On an error it offers nothing, and reports
// nothing: a message would disturb the line being typed.
func completeFrom(a *cli.App, cmd *cobra.Command, typed string, words func(context.Context, *client.Client) []string) ([]string, cobra.ShellCompDirective) {
	const done = cobra.ShellCompDirectiveNoFileComp
	if a.ResolveSettings(cmd) != nil {
		return nil, done
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	options, err := a.ClientOptions()
	if err != nil {
		return nil, done
	}
	c, err := client.Connect(ctx, strings.Join(a.Servers, ","), append(options, client.WithoutSpool(),
		client.WithRetryTimeout(completionTimeout), client.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		return nil, done
	}
	defer func() { _ = c.Close(ctx) }()
	return slices.DeleteFunc(words(ctx, c), func(word string) bool { return !strings.HasPrefix(word, typed) }), done
}

// matchingKeys lists the flights whose key begins with the typed text, in every form in which a key may be written.
func matchingKeys(ctx context.Context, a *cli.App, c *client.Client, typed string, states []string) (words []string) {
	for _, form := range keyForms(a, typed) {
		page, err := c.List(ctx, client.Query{States: states, KeyPrefix: form.prefix, Limit: maxCompletions, AllNamespaces: true})
		if err != nil {
			return words
		}
		for _, f := range page.Flights {
			word := strings.TrimPrefix(f.Key, form.trim)
			if form.id {
				word = f.ID
			}
			if f.Key != "" && strings.HasPrefix(word, typed) {
				words = append(words, word+"\t"+strings.TrimSpace(f.State+" "+f.Cause))
			}
		}
	}
	return words
}

// keyForm is a way to write a key: full keys with this prefix, less the part that may be omitted, or the ids of such
// flights.
type keyForm struct {
	prefix string // of the full keys
	trim   string // omitted from the front of the key
	id     bool   // the form is a flight id
}

// keyForms returns the forms that the typed word may be the beginning of: NAME/ID, the ID of a key made by exec, a full
// key, or a flight id.
func keyForms(a *cli.App, typed string) []keyForm {
	namespacePrefix, execPrefix := a.Namespace+"/", a.Namespace+"/"+cli.DefaultName+"/"
	forms := []keyForm{{prefix: namespacePrefix + typed, trim: namespacePrefix}}
	if typed == "" {
		return forms
	}
	forms = append(forms, keyForm{prefix: execPrefix + typed, trim: execPrefix}, keyForm{prefix: typed})
	if strings.HasPrefix(typed, "fl_") {
		forms = append(forms, keyForm{prefix: namespacePrefix, id: true})
	}
	return forms
}
