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
