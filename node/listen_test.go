package node

import (
	"errors"
	"net"
	"testing"

	"github.com/flightd/flightd/flight"
)

// TestANameThatLeadsElsewhereIsNotServed: what localhost means is the machine's to say, and it may be wrong.
func TestANameThatLeadsElsewhereIsNotServed(t *testing.T) {
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
		t.Errorf("an address that others reach: %v", err)
	}
	if _, err := everybody.Accept(); err == nil {
		t.Error("it still listens")
	}
}
