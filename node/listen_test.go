package node

import (
	"errors"
	"net"
	"testing"

	"github.com/flightd/flightd/flight"
)

// The name localhost may resolve to an address that is not a loopback address.
func TestHostResolvingElsewhereIsRejected(t *testing.T) {
	ours, err := listen("listen", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	everybody, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	var invalid *flight.InvalidError
	if _, err := onlyLoopback("listen", everybody); !errors.As(err, &invalid) {
		t.Errorf("an address that other machines reach: %v", err)
	}
	if _, err := everybody.Accept(); err == nil {
		t.Error("it still listens")
	}
}
