package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/httpapi/wire"
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

// FlagHint returns a hint with the nearest flag, or with the help of the command.
func FlagHint(cmd *cobra.Command, err error) string {
	seeHelp := "see " + cmd.CommandPath() + " --help"
	found := regexp.MustCompile(`unknown flag: --([^\s=]+)`).FindStringSubmatch(err.Error())
	if found == nil {
		return seeHelp
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	if suggestion := Nearest("--"+found[1], names); suggestion != "" {
		return DidYouMean(suggestion)
	}
	for _, c := range cmd.Root().Commands() { // as in flightd --doctor
		if c.Name() == found[1] {
			return DidYouMean(c.CommandPath())
		}
	}
	return seeHelp
}

// BadValue rewords the error about an invalid flag value, so that it names the values that the flag takes.
func BadValue(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	why := bad.Unwrap().Error()
	switch bad.GetFlag().Value.Type() {
	case "int", "int64":
		why = "a whole number"
	case "bool":
		why = "true or false"
	case "duration":
		if errors.Is(bad.Unwrap(), wire.ErrNotDuration) {
			why = "a duration, such as 20s, 24h or 7d"
		}
	}
	return fmt.Errorf("--%s %s: %s", bad.GetFlag().Name, bad.GetValue(), why)
}

// Nearest returns the words that cobra suggests for a typed word, joined with "or", or "" without a suggestion.
func Nearest(typed string, words []string) string {
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, w := range words {
		c.AddCommand(&cobra.Command{Use: w, Run: func(*cobra.Command, []string) {}})
	}
	return strings.Join(c.SuggestionsFor(typed), " or ")
}

// DidYouMean returns the hint that suggests a word, or "" for an empty word.
func DidYouMean(word string) string {
	if word == "" {
		return ""
	}
	return "did you mean " + word + "?"
}
