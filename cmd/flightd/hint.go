package main

import (
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagHint names the flag that was meant, where one is near.
func flagHint(cmd *cobra.Command, err error) string {
	see := "see " + cmd.CommandPath() + " --help"
	found := regexp.MustCompile(`unknown flag: --([^\s=]+)`).FindStringSubmatch(err.Error())
	if found == nil {
		return see
	}
	best, distance := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := editDistance(found[1], f.Name); d < distance {
			best, distance = f.Name, d
		}
	})
	if best == "" {
		return see
	}
	return "did you mean --" + best + "?"
}

// editDistance is how many bytes must be changed, added or dropped to make b of a.
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
