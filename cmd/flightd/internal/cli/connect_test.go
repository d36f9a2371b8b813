package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
)

// TestClassOf_HintsToStartAServerOnlyWhenNoneAnswers: that hint would mislead if a server answers with an error.
func TestClassOf_HintsToStartAServerOnlyWhenNoneAnswers(t *testing.T) {
	for code, started := range map[string]bool{"unreachable": true, "no_leader": false, "lease_unavailable": false, "draining": false} {
		_, exit, hint := (&App{}).ClassOf(&effect.Unavailable{Code: code, Cause: errors.New("why")})
		require.Equal(t, ExitUnreachable, exit, "%s: exit %d, %q", code, exit, hint)
		require.Equal(t, started, strings.Contains(hint, "flightd dev"), "%s: exit %d, %q", code, exit, hint)
		require.NotEmpty(t, hint, "%s: exit %d, %q", code, exit, hint)
	}
}
