package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// flightd warns of a variable that looks like a setting but is not, and suggests the setting that is probably meant.
func TestSettings_UnknownVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"FLIGHTD_ADRR=x":                       "the variable FLIGHTD_ADRR is not used; did you mean FLIGHTD_ADDR?",
		"FLIGHTD_SERVER=x":                     "did you mean FLIGHTD_ADDR?",
		"FLIGHTD_TIMEOUT=x":                    "the variable FLIGHTD_TIMEOUT is not used; flightd help settings lists the variables",
		"FLIGHTD_ADDR=x":                       "",
		"FLIGHTD_FLIGHT_ID=x":                  "",
		"FLIGHTD_ATTEMPT=1":                    "",
		"FLIGHTD_SERVICE_HOST=10.0.0.1":        "",
		"FLIGHTD_PORT=tcp://10.0.0.1:7420":     "",
		"FLIGHTD_PORT_7420_TCP_ADDR=10.0.0.1":  "",
		"FLIGHTD_SERVICE_PORT_API=7420":        "",
		"FLIGHTD_METRICS_SERVICE_HOST=10.0.0.": "",
	} {
		var out, errOut strings.Builder
		code := run(t.Context(), cli.Terminal{In: strings.NewReader(""), Out: &out, Err: &errOut, Env: func(string) string { return "" }, Environ: []string{"HOME=/", variable}}, []string{"config", "show"})
		require.Zero(t, code)
		if want == "" {
			require.Empty(t, errOut.String(), variable)
		} else {
			require.Contains(t, errOut.String(), want, variable)
		}
	}
}
