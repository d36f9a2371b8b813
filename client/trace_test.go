package client_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

// Each log line about a report has its key: of a spooled one, of one recorded later, and of a quarantined one.
func TestEveryLineAboutAReportHasItsKey(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	g.setFault(nil)
	c := g.connect()
	g.waitForFlight(key, func(f *flight.Flight) bool { return f.State.Terminal() })
	_, err := c.Record(key, client.ReportRequest{FencingToken: "x", Outcome: "succeeded"})
	require.Error(t, err)
	require.NoError(t, c.Close(t.Context()))
	text := strings.TrimSpace(g.logged())
	for _, want := range []string{"its report waits in", "is recorded", "quarantined"} {
		require.Contains(t, text, want)
	}
	for line := range strings.Lines(text) {
		require.Contains(t, line, " key="+key.String(), "so that one search finds the story")
	}
}
