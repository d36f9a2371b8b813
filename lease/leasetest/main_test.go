package leasetest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that were left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
