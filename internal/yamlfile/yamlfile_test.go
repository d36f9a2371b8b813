package yamlfile_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/yamlfile"
)

// No document gets lost, whatever stands between it and the one before.
func TestParse_EveryDocument(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 5000 {
		var text strings.Builder
		want := 0
		for range 1 + random.IntN(6) {
			if text.Len() > 0 {
				text.WriteString([]string{"---\n", "--- # comment\n", "...\n---\n"}[random.IntN(3)])
			} else if random.IntN(2) == 0 {
				text.WriteString("---\n")
			}
			switch random.IntN(5) {
			case 0:
			case 1:
				text.WriteString("# comment\n\n  # more\n")
			case 2:
				text.WriteString("\n\n")
			default:
				want++
				fmt.Fprintf(&text, "name: d%d\nlist: [1, 2]\n", want)
				if random.IntN(3) == 0 {
					text.WriteString("text: |\n  ---x\n  two\n")
				}
			}
		}
		mark := []string{"", "\ufeff"}[random.IntN(2)] // some editors begin a file with it
		bodies, err := yamlfile.Parse([]byte(mark + text.String()))
		require.NoError(t, err, text.String())
		require.Len(t, bodies, want, "%q", text.String())
		for i, body := range bodies {
			require.Contains(t, body.String(), fmt.Sprintf("name: d%d\n", i+1))
			require.NotContains(t, body.String(), "\ufeff")
		}
	}
}
