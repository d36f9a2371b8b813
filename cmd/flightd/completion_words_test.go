package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// work and submit offer actions, and the commands of sagas offer sagas.
func TestComplete_ActionsAndSagas(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	definition := filepath.Join(t.TempDir(), "trip.yaml")
	require.NoError(t, os.WriteFile(definition, []byte("saga: trip\nversion: 1\nsteps:\n  hotel: { no_undo: true }\n"), 0o600))
	r := s.flightd("sagas", "apply", definition)
	require.Zero(t, r.code, "%v", r)
	r = s.flightd("sagas", "start", "trip", "--id", "b-42")
	require.Zero(t, r.code, "%v", r)
	require.Zero(t, s.flightd("submit", "mail", "m-1").code)
	for line, want := range map[string]string{
		"sagas get ": "trip/b-42", "sagas watch tr": "trip/b-42", "sagas cancel x": "", "sagas get trip/b-42 ": "",
		"submit ma": "mail", "work ma": "mail", "work mail ma": "mail", "submit mail ": "",
	} {
		Eventually(t, line+" is completed to "+want, 30*time.Second, func() bool { return strings.Join(s.complete(strings.Split(line, " ")...), " ") == want })
	}
}
