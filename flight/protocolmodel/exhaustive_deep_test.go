//go:build deep

package protocolmodel

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestExhaustive explores the whole table; make explore runs it. A configuration gets 25 seconds, so that the table ends
// within the time-out of make explore, or FLIGHTD_MODEL_TIME, for example 10m. The largest need 5 GB then.
func TestExhaustive(t *testing.T) {
	limits := Limits{Time: 25 * time.Second}
	if v := os.Getenv("FLIGHTD_MODEL_TIME"); v != "" {
		d, err := time.ParseDuration(v)
		require.NoError(t, err)
		limits.Time = d
	}
	debug.SetGCPercent(30)
	exploreTable(t, limits, Configurations())
}
