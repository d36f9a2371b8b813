package leasetest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails on leaked goroutines.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
