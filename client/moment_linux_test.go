package client

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine that was asleep has lost its right to start, also where its monotonic clock stood still meanwhile and its wall
// clock was set back.
func TestTrustEndsWhileTheMachineSleeps(t *testing.T) {
	var awake, asleep trust
	sent := now()
	awake.extend(sent, 60_000)
	require.Positive(t, awake.left())
	sent.boot -= time.Hour
	asleep.extend(sent, 60_000)
	require.Negative(t, asleep.left())
}
