package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagHint returns a hint with the nearest flag, or with the help of the command.
func flagHint(cmd *cobra.Command, err error) string {
	see := "see " + cmd.CommandPath() + " --help"
	found := regexp.MustCompile(`unknown flag: --([^\s=]+)`).FindStringSubmatch(err.Error())
	if found == nil {
		return see
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	if meant := nearest("--"+found[1], names); meant != "" {
		return didYouMean(meant)
	}
	for _, c := range cmd.Root().Commands() { // as in flightd --doctor
		if c.Name() == found[1] {
			return didYouMean(c.CommandPath())
		}
	}
	return see
}

// badValue rewords the error about an invalid flag value, so that it names the values that the flag takes.
func badValue(err error) error {
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
		if strings.HasPrefix(why, "time: ") {
			why = "a duration, such as 20s"
		}
	}
	return fmt.Errorf("--%s %s: %s", bad.GetFlag().Name, bad.GetValue(), why)
}

// nearest returns the word with the smallest edit distance below 3; "": none is that near.
func nearest(said string, words []string) string {
	best, distance := "", min(3, len(said))
	for _, w := range words {
		if d := editDistance(said, w); d < distance {
			best, distance = w, d
		}
	}
	return best
}

func didYouMean(word string) string {
	if word == "" {
		return ""
	}
	return "did you mean " + word + "?"
}

// editDistance returns the number of bytes to change, insert or delete to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
