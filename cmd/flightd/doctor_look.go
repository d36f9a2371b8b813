package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/internal/wire"
	"github.com/flightd/flightd/lease"
)

// examination is the doctor at work. It measures; what that means is judged in doctor_judge.go.
type examination struct {
	*app
	findings []finding
	alone    bool // no server answers
}

// How long a server may take to answer the doctor, and for how long one that refuses is tried again: the doctor wants
// to know how things stand now.
const (
	doctorPatience = 2 * time.Second
	doctorTries    = 300 * time.Millisecond
)

func (e *examination) add(f finding) { e.findings = append(e.findings, f) }

func (e *examination) look(ctx context.Context) {
	e.lookAtFolders()
	data := ""
	if c := e.findServer(ctx); c != nil {
		data = e.lookAtServer(ctx, c)
		farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		_ = c.Close(farewell) // it holds nothing
		cancel()
	}
	e.lookAtDisk(data)
}

// lookAtFolders looks at the places of a person: settings, and reports that wait.
func (e *examination) lookAtFolders() {
	spool, err := client.DefaultSpool()
	if err != nil {
		e.add(finding{Check: "folders", Status: fail, Says: err.Error(), Do: "set HOME, or XDG_STATE_HOME to a folder of your own"})
		return
	}
	path := e.configPath()
	_, statErr := os.Stat(path)
	e.add(judgeFolders(folders{config: path, configThere: statErr == nil, spool: spool, trouble: tryFolder(spool)}))
	names, err := os.ReadDir(spool)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return // the folders tell
	}
	var s spooledReports
	for _, n := range names {
		switch filepath.Ext(n.Name()) {
		case ".report":
			s.waiting++
		case ".damaged", ".refused":
			s.aside = append(s.aside, n.Name())
		}
	}
	e.add(judgeSpool(spool, s))
}

// tryFolder says what is wrong with a folder of one's own: nil when a file can be written there, or when the folder
// could be made.
func tryFolder(dir string) error {
	for {
		info, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir) // the nearest that is there decides
			continue
		}
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is no folder", dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("%s cannot be written: %w", dir, err)
		}
		return nil
	}
}

// findServer tries every address and gives a client of the first that answers; nil when none does.
func (e *examination) findServer(ctx context.Context) (found *client.Client) {
	answers := make([]answer, 0, len(e.servers))
	for _, address := range e.servers {
		c, err := e.call(ctx, address)
		answers = append(answers, answer{address, err})
		switch {
		case err != nil:
		case found == nil:
			found = c
		default:
			_ = c.Close(ctx)
		}
	}
	e.alone = found == nil
	for _, a := range answers {
		e.add(judgeAnswer(a, e.alone))
	}
	return found
}

// call connects to one server. It leaves the reports that wait alone: the doctor only looks.
func (e *examination) call(ctx context.Context, address string) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	return client.Connect(ctx, address, client.WithNamespace(e.namespace), client.WithoutSpool(), client.WithPatience(doctorTries),
		client.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
}

// lookAtServer asks a server that answers about everything. It gives the data directory.
func (e *examination) lookAtServer(ctx context.Context, c *client.Client) (data string) {
	ready, clock, err := askClock(ctx, c)
	if err != nil {
		e.add(finding{Check: "parts", Status: fail, Says: "/readyz does not answer: " + err.Error(), Do: "look at the server's log"})
		return ""
	}
	e.add(judgeParts(ready.Checks))
	if version, err := c.Version(ctx); err != nil {
		e.add(finding{Check: "versions", Status: warn, Says: "/version does not answer: " + err.Error(), Do: "look at the server's log"})
	} else {
		e.add(judgeVersions(wire.Version{Version: buildVersion(), API: "v1", Go: runtime.Version()}, *version))
	}
	if ready.Node == nil {
		e.add(finding{Check: "clock", Status: warn, Says: "the server tells neither its time nor its etcd", Do: "it is older than this program: update it"})
	} else {
		e.add(judgeClock(clock, ready.Node.LedgerTime.Sub(ready.Node.Time.Time)))
		e.add(judgeEtcd(ready.Node.Etcd))
		if s := ready.Node.Spool; s != nil {
			e.add(judgeNodeSpool(ready.Node.Data, *s))
		}
		data = ready.Node.Data
	}
	e.add(judgeLease(lease.DefaultTTL, timeRenewals(ctx, c)))
	return data
}

// clockReading compares two clocks, as far as the way between them allows.
type clockReading struct {
	offset  time.Duration // how much the server's clock is ahead
	trip    time.Duration // the quickest question and answer; the offset may be wrong by half of it
	stepped time.Duration // by how much this machine's own clock was set while it was looked at
	local   time.Time
}

// askClock asks a few times and believes the quickest answer.
func askClock(ctx context.Context, c *client.Client) (ready *client.Ready, r clockReading, err error) {
	began := time.Now()
	for range 3 {
		sent := time.Now()
		answer, err := c.Ready(ctx)
		if err != nil {
			return nil, r, err
		}
		trip := time.Since(sent)
		if ready != nil && trip >= r.trip {
			continue
		}
		ready, r.trip = answer, trip
		if n := answer.Node; n != nil {
			r.offset = n.Time.Sub(sent.Add(trip / 2).Round(0))
		}
	}
	now := time.Now()
	r.local, r.stepped = now, now.Round(0).Sub(began.Round(0))-now.Sub(began)
	return ready, r, nil
}

// renewals is how long a few of them took.
type renewals struct {
	took []time.Duration
	err  error
}

// timeRenewals makes a session, renews it a few times, and gives it up.
func timeRenewals(ctx context.Context, c *client.Client) (r renewals) {
	ctx, cancel := context.WithTimeout(ctx, lease.RenewEvery(lease.DefaultTTL))
	defer cancel()
	s, err := c.NewSession(ctx, lease.DefaultTTL, "flightd doctor")
	if err != nil {
		return renewals{err: err}
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		_ = c.CloseSession(bye, s.Session) // else it expires
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

// lookAtDisk measures the data directory: the server's where it is on this machine, else the one that the settings
// name, where it is there.
func (e *examination) lookAtDisk(told string) {
	dir := told
	if flag := e.setting("data"); dir == "" || flag.byFlag {
		dir = flag.Value
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		f := finding{Check: "disk", Status: ok, Says: "there is no data directory " + dir + " here"}
		if told != "" {
			f.Status, f.Do = warn, "run flightd doctor where the server runs, to measure its disk"
		}
		e.add(f)
		return
	}
	e.add(judgeDisk(dir, timeSyncs(dir)))
}

// syncs is how long a few small writes took until the disk had them, and what is left of the disk.
type syncs struct {
	took []time.Duration // shortest first
	free uint64          // bytes
	err  error
}

// timeSyncs writes as a log does: small appends, each synced.
func timeSyncs(dir string) (s syncs) {
	file, err := os.CreateTemp(dir, "doctor-*")
	if err != nil {
		return syncs{err: err}
	}
	defer func() { s.err = errors.Join(s.err, file.Close(), os.Remove(file.Name())) }()
	block := []byte(strings.Repeat("flightd\n", 512))
	for range 32 {
		began := time.Now()
		if _, err := file.Write(block); err != nil {
			return syncs{err: err}
		}
		if err := file.Sync(); err != nil {
			return syncs{err: err}
		}
		s.took = append(s.took, time.Since(began))
	}
	sort.Slice(s.took, func(i, j int) bool { return s.took[i] < s.took[j] })
	var fs unix.Statfs_t
	if s.err = unix.Statfs(dir, &fs); s.err == nil {
		s.free = fs.Bavail * uint64(fs.Bsize)
	}
	return s
}
