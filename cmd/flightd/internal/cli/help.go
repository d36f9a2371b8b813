package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// CommandGroup returns a command that only has subcommands.
func CommandGroup(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: NoSuchCommand, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(subs...)
	return c
}

// ExactArgs requires n arguments; what describes them.
func ExactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return &Error{Code: ExitUsage, Hint: "see " + cmd.CommandPath() + " --help",
				Err: fmt.Errorf("%s takes %s; %s given", cmd.CommandPath(), what, Pluralize(len(args), "argument is", "arguments are"))}
		}
		return nil
	}
}

// ArgsOf returns the check of the arguments that the usage line of a command names: none, or KEY-or-ID. It returns nil for another line.
func ArgsOf(cmd *cobra.Command) cobra.PositionalArgs {
	_, args, _ := strings.Cut(cmd.Use, " ")
	switch {
	case args == "" || strings.HasPrefix(args, "--"):
		return ExactArgs(0, "no arguments")
	case args == "KEY-or-ID":
		return ExactArgs(1, "a key or an id")
	}
	return nil
}

// suggestedCommands are the commands to suggest for words that other programs have.
var suggestedCommands = map[string]string{
	"flightd cert renew":   "flightd cert init DIRECTORY",
	"flightd cert show":    "flightd doctor",
	"flightd token rotate": "flightd token create NAME --rotate",
	"flightd token delete": "flightd token revoke NAME",
	"flightd token rm":     "flightd token revoke NAME",
}

// NoSuchCommand rejects an unknown subcommand. The hint names the subcommand elsewhere that has this name, else the
// nearest one.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	e := &Error{Code: ExitUsage, Err: fmt.Errorf("%s has no command %q", cmd.CommandPath(), args[0])}
	if suggestion := suggestedCommands[cmd.CommandPath()+" "+args[0]]; suggestion != "" {
		e.Hint = DidYouMean(suggestion)
	} else if same := commandsNamed(cmd.Root(), args[0]); len(same) > 0 {
		e.Hint = DidYouMean(strings.Join(same, " or "))
	} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		e.Hint = DidYouMean(cmd.CommandPath() + " " + strings.Join(near, ", "))
	} else {
		e.Hint = "see " + cmd.CommandPath() + " --help"
	}
	return e
}

// commandsNamed returns the paths of all visible commands below cmd with this name.
func commandsNamed(cmd *cobra.Command, name string) (paths []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() == name {
			paths = append(paths, c.CommandPath())
		}
		paths = append(paths, commandsNamed(c, name)...)
	}
	return paths
}
