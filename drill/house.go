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

// server is one flightd with its data directory. Its address stays the same over all restarts.
type house struct {
	binary  string
	dir     string
	address string
	proc    *process // nil while flightd is not running
}

// newServer prepares a server in its own directory. number keeps the ports of parallel servers apart.
func newHouse(binary, dir string, number int) (*house, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	address, err := freeAddress(number)
	return &house{binary: binary, dir: dir, address: address}, err
}

// The ports of the servers are below the kernel's ephemeral ports. Otherwise an outgoing connection could take the
// address while flightd is not running.
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
	return "", fmt.Errorf("no free port below %d", port)
}

func (h *house) url() string { return "http://" + h.address }

func (h *house) log() string { return filepath.Join(h.dir, "log") }

// start starts flightd on the data of the previous process, which it kills if it still runs. The new process kills
// itself at crash, if that is not "".
func (h *house) start(ctx context.Context, crash crashpoint.Point) error {
	h.kill()
	p, url, err := startServing(ctx, h.binary, "flightd", h.log(), crash, "dev", "--data", filepath.Join(h.dir, "data"), "--listen", h.address)
	if err != nil {
		return err
	}
	h.proc = p
	if url != h.url() {
		return fmt.Errorf("flightd listens on %s, not on %s", url, h.url())
	}
	return nil
}

// waitKilled waits until flightd has killed itself at its crash point.
func (h *house) died(ctx context.Context) error {
	select {
	case <-h.proc.done:
	case <-ctx.Done():
		return fmt.Errorf("flightd did not reach its crash point: %w", context.Cause(ctx))
	}
	if !h.proc.wasKilled() {
		return fmt.Errorf("flightd exited (%v) and was not killed by SIGKILL; see the log %s", h.proc.cmd.ProcessState, h.log())
	}
	return nil
}

// kill kills flightd with SIGKILL, if it runs.
func (h *house) kill() {
	if h.proc != nil {
		h.proc.kill()
		h.proc = nil
	}
}
