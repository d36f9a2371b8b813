package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
)

// run is one run of doctor. It measures; the functions in checks.go turn measurements into findings.
type run struct {
	*cli.App
	findings []Finding
	noServer bool // no server answers
}

// doctorTimeout bounds one connection. doctorRetryTime bounds its retries: doctor reports the present state, so it does
// not wait for a server to come up.
const (
	doctorTimeout   = 2 * time.Second
	doctorRetryTime = 300 * time.Millisecond
)

func (r *run) add(f Finding) {
	f.Says, f.Do = cli.Message(f.Says), cli.Message(f.Do)
	r.findings = append(r.findings, f)
}

func (r *run) measure(ctx context.Context) {
	r.measureFolders()
	data := ""
	if c := r.findServer(ctx); c != nil {
		data = r.measureServer(ctx, c)
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTimeout)
		_ = c.Close(closeCtx) // no report is pending
		cancel()
	}
	r.measureDisk(data)
}

// measureFolders examines the user's directories and the spooled reports.
func (r *run) measureFolders() {
	spool, err := client.DefaultSpoolDir()
	if err != nil {
		r.add(Finding{Check: "folders", Status: StatusFail, Says: err.Error(), Do: "set HOME, or set XDG_STATE_HOME to a directory that you own"})
		return
	}
	path := r.Config.Path
	_, statErr := os.Stat(path)
	r.add(checkFolders(folders{config: path, configExists: statErr == nil, spool: spool, spoolErr: checkWritable(spool), unknown: r.UnknownVariables()}))
	names, err := os.ReadDir(spool)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return // the finding above reports it
	}
	var s spooledReports
	for _, n := range names {
		switch filepath.Ext(n.Name()) {
		case ".report":
			s.waiting++
		case ".damaged", ".rejected":
			s.quarantined = append(s.quarantined, n.Name())
		}
	}
	r.add(checkSpool(spool, s))
}

// checkWritable returns nil if a file can be written in the directory, or if the directory can be created.
func checkWritable(dir string) error {
	for {
		info, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir) // the nearest existing directory decides
			continue
		}
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("%s is not writable: %w", dir, err)
		}
		return nil
	}
}

// findServer connects to every address and returns a client of the first that answers, or nil if none does.
func (r *run) findServer(ctx context.Context) (found *client.Client) {
	answers := make([]serverAnswer, 0, len(r.Servers))
	var listed []listedServer
	for _, address := range r.Servers {
		c, err := r.connectTo(ctx, address)
		answers = append(answers, serverAnswer{cli.HideUser(address), err, r.ServerHint(), err != nil && speaksTLS(ctx, address)})
		if err == nil {
			s := listedServer{address: cli.HideUser(address), deployment: c.Deployment()}
			if v, err := c.Version(ctx); err == nil {
				s.version = v.Version
			}
			listed = append(listed, s)
		}
		switch {
		case err != nil:
		case found == nil:
			found = c
		default:
			_ = c.Close(ctx)
		}
	}
	r.noServer = found == nil && !slices.ContainsFunc(answers, func(a serverAnswer) bool {
		return isRejection(a.err) || client.CodeOf(a.err) == wire.WrongDeployment || a.speaksTLS
	})
	for _, a := range answers {
		r.add(checkServer(a, r.noServer))
		if a.err == nil || isRejection(a.err) || cli.TLSHint(a.err) != "" {
			if c, isTLS := r.measureCertificate(ctx, a.address); isTLS {
				r.add(checkCertificate(c, time.Now()))
			}
		}
		if isRejection(a.err) && !a.speaksTLS && found == nil {
			known := r.localAccess()
			known.err = a.err
			r.add(checkToken(known))
		}
	}
	if len(listed) > 1 {
		r.add(checkServers(listed))
	}
	return found
}

// connectTo connects to one server. It sends no spooled reports: doctor changes nothing.
func (r *run) connectTo(ctx context.Context, address string) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	options, err := r.ClientOptions()
	if err != nil {
		return nil, err
	}
	return client.Connect(ctx, address, append(options, client.WithoutSpool(), client.WithRetryTimeout(doctorRetryTime),
		client.WithLogger(slog.New(slog.DiscardHandler)))...)
}

// measureServer examines a server that answers. It returns the server's data directory.
func (r *run) measureServer(ctx context.Context, c *client.Client) (data string) {
	r.add(checkToken(r.measureAccess(ctx, c)))
	ready, clock, err := measureClock(ctx, c)
	if client.CodeOf(err) == wire.Forbidden {
		r.add(skipped("parts", "operate or admin"))
	} else if err != nil {
		r.add(Finding{Check: "parts", Status: StatusFail, Says: "/readyz does not answer: " + err.Error(), Do: "see the server's log"})
		return ""
	}
	if ready != nil {
		r.add(checkParts(ready.Checks))
		if ready.Ledger != nil {
			r.add(checkLedger(ready.Ledger, c.Deployment(), time.Now()))
		}
	}
	if version, err := c.Version(ctx); err != nil {
		r.add(Finding{Check: "versions", Status: StatusWarn, Says: "/version does not answer: " + err.Error(), Do: "see the server's log"})
	} else {
		r.add(checkVersions(wire.Version{Version: r.Version, API: "v1", Go: runtime.Version()}, *version))
	}
	r.measureCluster(ctx, c)
	if restore, err := c.Restore(ctx); err == nil && restore.Reconciling { // an older server has no such route
		r.add(checkRestore(restore))
	}
	r.add(checkDoubts(r.listFor(ctx, c, flight.StateInDoubt)))
	r.add(checkRerun(r.listFor(ctx, c, flight.StateReady), time.Now()))
	switch {
	case ready == nil:
		r.add(skipped("clock", "operate or admin"))
		r.add(skipped("etcd", "operate or admin"))
	case ready.Node == nil:
		r.add(Finding{Check: "clock", Status: StatusWarn, Says: "the server reports neither its time nor its etcd", Do: "upgrade the server: it is older than this program"})
	default:
		var ledger time.Duration
		if t := ready.Node.LedgerTime; !t.IsZero() { // the leader says it
			ledger = t.Sub(ready.Node.Time.Time)
		}
		r.add(checkClock(clock, ledger))
		r.add(checkEtcd(ready.Node.Etcd))
		if s := ready.Node.Spool; s != nil {
			r.add(checkNodeSpool(ready.Node.Data, *s))
		}
		r.add(checkNotify(ready.Node.NotifyFailing))
		data = ready.Node.Data
	}
	r.add(checkLease(lease.DefaultTTL, measureRenewals(ctx, c)))
	return data
}

// listFor lists flights in a state, in all namespaces, or in that of the token. It stops at maxListed.
func (r *run) listFor(ctx context.Context, c *client.Client, state flight.State) (found flightsFound) {
	q := client.Query{States: []string{state.String()}, Limit: cli.MaxListed, AllNamespaces: true}
	var next string
	found.flights, next, found.err = cli.ListPages(ctx, c, q)
	if client.CodeOf(found.err) == wire.Forbidden {
		q.AllNamespaces, found.namespace = false, r.Namespace
		found.flights, next, found.err = cli.ListPages(ctx, c, q)
	}
	found.more = next != ""
	return found
}

// clockReading compares the server's clock with this machine's, within half the round-trip time.
type clockReading struct {
	offset    time.Duration // how far the server's clock is ahead
	roundTrip time.Duration // the shortest round trip; the error of offset is at most half of it
	stepped   time.Duration // by how much this machine's clock was set during the measurement
	local     time.Time
}

// measureClock asks three times and uses the answer with the shortest round trip.
func measureClock(ctx context.Context, c *client.Client) (ready *client.Ready, r clockReading, err error) {
	start := time.Now()
	for range 3 {
		sent := time.Now()
		answer, err := c.Ready(ctx)
		if err != nil {
			return nil, r, err
		}
		roundTrip := time.Since(sent)
		if ready != nil && roundTrip >= r.roundTrip {
			continue
		}
		ready, r.roundTrip = answer, roundTrip
		if n := answer.Node; n != nil {
			r.offset = n.Time.Sub(sent.Add(roundTrip / 2).Round(0))
		}
	}
	now := time.Now()
	r.local, r.stepped = now, now.Round(0).Sub(start.Round(0))-now.Sub(start)
	return ready, r, nil
}

// renewals holds the durations of a few lease renewals.
type renewals struct {
	took []time.Duration
	err  error
}

// measureRenewals creates a session, renews it ten times, and closes it.
func measureRenewals(ctx context.Context, c *client.Client) (r renewals) {
	ctx, cancel := context.WithTimeout(ctx, lease.RenewEvery(lease.DefaultTTL))
	defer cancel()
	s, err := c.NewSession(ctx, lease.DefaultTTL, "flightd doctor")
	if err != nil {
		return renewals{err: err}
	}
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.CloseTimeout)
		defer cancel()
		_ = c.CloseSession(closeCtx, s.Session) // if this fails, the session expires
	}()
	for range 10 {
		sent := time.Now()
		if _, err := c.Renew(ctx, s.Session, client.RenewRequest{}); err != nil {
			r.err = err
			return r
		}
		r.took = append(r.took, time.Since(sent))
	}
	return r
}

// measureDisk measures the data directory of --data, else the server's, else the one in the settings. A directory that
// does not exist on this machine is not measured.
func (r *run) measureDisk(serverData string) {
	dir := serverData
	if flag := r.Setting("data"); dir == "" || flag.Source == cli.FromFlag {
		dir = flag.Value
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		f := Finding{Check: "disk", Status: StatusOK, Says: "no data directory " + dir + " on this machine"}
		if serverData != "" {
			f.Status, f.Do = StatusWarn, "run flightd doctor on the server's machine to measure its disk"
		}
		r.add(f)
		return
	}
	r.add(checkDisk(dir, measureSyncs(dir)))
}

// syncs holds the durations of a few small synced writes, and the free space of the disk.
type syncs struct {
	took []time.Duration // shortest first
	free uint64          // bytes
	err  error
}

// measureSyncs writes like a log: small appends, each synced.
func measureSyncs(dir string) (s syncs) {
	file, err := os.CreateTemp(dir, "doctor-*")
	if err != nil {
		return syncs{err: err}
	}
	defer func() { s.err = errors.Join(s.err, file.Close(), os.Remove(file.Name())) }()
	block := []byte(strings.Repeat("flightd\n", 512))
	for range 32 {
		start := time.Now()
		if _, err := file.Write(block); err != nil {
			return syncs{err: err}
		}
		if err := file.Sync(); err != nil {
			return syncs{err: err}
		}
		s.took = append(s.took, time.Since(start))
	}
	slices.Sort(s.took)
	var fs unix.Statfs_t
	if s.err = unix.Statfs(dir, &fs); s.err == nil {
		s.free = fs.Bavail * uint64(fs.Bsize)
	}
	return s
}
