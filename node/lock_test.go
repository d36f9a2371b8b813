package node

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/flightd/flightd/flight"
)

func TestOneProcessPerDataDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := lockData(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockData(dir)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder != strconv.Itoa(os.Getpid()) || !strings.Contains(err.Error(), locked.Holder) {
		t.Fatalf("the second one got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockData(dir)
	if err != nil {
		t.Fatalf("lock after the first holder closed: %v", err)
	}
	_ = again.Close()
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	for address, good := range map[string]bool{
		"127.0.0.1:7420": true, "127.9.9.9:1": true, "[::1]:7420": true, "localhost:0": true,
		"0.0.0.0:7420": false, ":7420": false, "192.168.1.1:7420": false, "[::]:7420": false, "example.org:7420": false,
		"127.0.0.1": false, "127.0.0.1:99999": false, "127.0.0.1:x": false,
	} {
		err := checkLoopback("listen", address)
		var invalid *flight.InvalidError
		if good != (err == nil) || err != nil && !errors.As(err, &invalid) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
