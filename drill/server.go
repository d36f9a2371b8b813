package drill

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/proctest"
)

// server is one flightd with its data directory. Its address stays the same over all restarts.
type server struct {
	binary  string
	dir     string
	address string
	proc    *proctest.Process // nil while flightd is not running
}

// newServer prepares a server in its own directory. number keeps the ports of parallel servers apart.
func newServer(binary, dir string, number int) (*server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	address, err := freeAddress(number)
	return &server{binary: binary, dir: dir, address: address}, err
}

// The ports of the servers are below the kernel's ephemeral ports. Otherwise an outgoing connection could take the
// address while flightd is not running.
const (
	firstPort      = 20000
	lastPort       = 31999
	portsPerServer = 50
)

func freeAddress(number int) (string, error) {
	port := firstPort + (os.Getpid()*7+number*portsPerServer)%(lastPort-firstPort)
	for range portsPerServer {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		port++
	}
	return "", fmt.Errorf("no free port below %d", port)
}

func (s *server) url() string { return "http://" + s.address }

func (s *server) logPath() string { return filepath.Join(s.dir, "log") }

// start starts flightd on the data of the previous process, which it kills if it still runs. The new process kills
// itself at crash, if that is not "".
func (s *server) start(ctx context.Context, crash crashpoint.Point) error {
	s.kill()
	p, url, err := startServerProcess(ctx, processSpec(s.binary, "server", s.logPath(), crash, "dev", "--data", filepath.Join(s.dir, "data"), "--listen", s.address))
	if err != nil {
		return err
	}
	s.proc = p
	if url != s.url() {
		return fmt.Errorf("flightd listens on %s, not on %s", url, s.url())
	}
	return nil
}

// waitKilled waits until flightd has killed itself at its crash point.
func (s *server) waitKilled(ctx context.Context) error {
	select {
	case <-s.proc.Ended():
	case <-ctx.Done():
		return fmt.Errorf("flightd did not reach its crash point: %w", context.Cause(ctx))
	}
	if !wasKilled(s.proc) {
		return fmt.Errorf("flightd exited (%v) and was not killed by SIGKILL; see the log %s", s.proc.Err(), s.logPath())
	}
	return nil
}

// kill kills flightd with SIGKILL, if it runs.
func (s *server) kill() {
	if s.proc != nil {
		s.proc.Kill()
		s.proc = nil
	}
}
