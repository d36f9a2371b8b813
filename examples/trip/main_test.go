package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the providers, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "provider" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTrip(t *testing.T) {
	t.Setenv("FLIGHTD_ADDR", "")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, `b-1: done
b-2: undone: step pay was refused: Payment Required: the limit is 1000.00
hotel: 3 requests, 3 effects: book b-1, book b-2, cancel b-2
airline: 4 requests, 3 effects: book b-1, book b-2, cancel b-2
card: 2 requests, 1 effects: charge b-1
mail: 2 requests, 1 effects: send b-1
`, out.String())
}

// The Go blocks of the guide to sagas are lines of this program.
func TestTrip_IsInTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/sagas.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?\n)```").FindAllSubmatch(guide, -1)
	require.Len(t, blocks, 3)
	for _, b := range blocks {
		require.Contains(t, string(program), "\t"+strings.ReplaceAll(strings.TrimSuffix(string(b[1]), "\n"), "\n", "\n\t")+"\n")
	}
}
