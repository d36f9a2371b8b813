package flightdtest_test

import (
	"testing"

	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flightdtest"
)

// The double takes the same exam as the store.
func TestConformance(t *testing.T) {
	executortest.Run(t, func(*testing.T) executortest.Store { return flightdtest.NewLedger() })
}
