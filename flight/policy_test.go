package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// TestPolicy_ValidateRejects: the ledger would store an invalid policy unchanged.
func TestPolicy_ValidateRejects(t *testing.T) {
	for field, p := range map[string]flight.Policy{
		"recovery":          {Recovery: flight.RecoveryVerify + 1},
		"verify_attempts":   {VerifyAttempts: -1},
		"retry.attempts":    {Retry: flight.RetryPolicy{Attempts: -1}},
		"attempt_timeout":   {AttemptTimeout: -time.Second},
		"settle_delay":      {SettleDelay: -1},
		"provider_window":   {ProviderWindow: flight.MaxPolicyTime + 1},
		"retention":         {Retention: -time.Hour},
		"run_after":         {RunAfter: 1 << 62},
		"retry.min_backoff": {Retry: flight.RetryPolicy{Attempts: 1, MinBackoff: -1}},
		"retry.max_backoff": {Retry: flight.RetryPolicy{Attempts: 1, MaxBackoff: -1}},
		"retry.within":      {Retry: flight.RetryPolicy{Attempts: 1, Within: -1}},
	} {
		var invalid *flight.InvalidError
		err := p.Validate()
		require.ErrorAs(t, err, &invalid, "%s: %v", field, err)
		require.Equal(t, field, invalid.Field, "%s: %v", field, err)
	}
	for _, p := range []flight.Policy{
		{}, {Recovery: flight.RecoveryVerify, AttemptTimeout: time.Second, SettleDelay: time.Minute, VerifyAttempts: 3, Retention: flight.MaxPolicyTime},
		{Retry: flight.RetryPolicy{Attempts: 8, MinBackoff: time.Second, MaxBackoff: time.Minute, Within: time.Hour}, RunAfter: time.Hour, Approval: true},
	} {
		err := p.Validate()
		require.NoError(t, err, "%+v: %v", p, err)
	}
}
