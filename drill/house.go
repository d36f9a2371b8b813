package drill

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/flightd/flightd/internal/crashpoint"
)

// house is one flightd with its data, over all its lives. Its address is the same in each.
type house struct {
	binary  string
	dir     string
	address string
	proc    *process // of the current life; nil between two
}

// newHouse prepares a house in a directory of its own. Number keeps the addresses of houses apart.
func newHouse(binary, dir string, number int) (*house, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	address, err := freeAddress(number)
	return &house{binary: binary, dir: dir, address: address}, err
}

// The ports that houses take: below those that the kernel gives to outgoing connections, of which none must take the
// address while flightd is dead.
const (
	firstPort     = 20000
	lastPort      = 31999
	portsPerHouse = 50
)

func freeAddress(number int) (string, error) {
	port := firstPort + (os.Getpid()*7+number*portsPerHouse)%(lastPort-firstPort)
	for range portsPerHouse {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		port++
	}
	return "", fmt.Errorf("no port near %d is free", port)
}

func (h *house) url() string { return "http://" + h.address }

func (h *house) log() string { return filepath.Join(h.dir, "log") }

// start begins a life, on the data of the one before. crash is where it will end by itself.
func (h *house) start(ctx context.Context, crash crashpoint.Point) error {
	h.kill()
	p, url, err := startServing(ctx, h.binary, "flightd", h.log(), crash, "dev", "--data", filepath.Join(h.dir, "data"), "--listen", h.address)
	if err != nil {
		return err
	}
	h.proc = p
	if url != h.url() {
		return fmt.Errorf("flightd listens on %s and not on %s", url, h.url())
	}
	return nil
}

// died waits until flightd has killed itself.
func (h *house) died(ctx context.Context) error {
	select {
	case <-h.proc.done:
	case <-ctx.Done():
		return fmt.Errorf("flightd did not die at its crash point: %w", context.Cause(ctx))
	}
	if !h.proc.wasKilled() {
		return fmt.Errorf("flightd ended by itself (%v) and not by SIGKILL; its log is %s", h.proc.cmd.ProcessState, h.log())
	}
	return nil
}

// kill ends the life, if there is one, with SIGKILL.
func (h *house) kill() {
	if h.proc != nil {
		h.proc.kill()
		h.proc = nil
	}
}
