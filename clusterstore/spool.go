package clusterstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors/oserror"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// spool stores reports that are not committed yet: one fsynced file each. Each report is proposed until it is
// committed, also after a restart. A report may be the only record of an effect that happened, so it must survive the
// process.
type spool struct {
	cfg *Config
	dir string

	tempCount atomic.Uint64 // number of temporary files created
	unknown   int           // files that this build cannot decode; constant after openSpool

	mu      sync.Mutex                // guards reports
	reports map[string]*flight.Report // by file name
}

// A file of the spool consists of spoolMagic, a checksum of the report, and the encoded report.
const (
	spoolMagic       = "FDR1"
	spoolSuffix      = ".report"
	quarantineSuffix = ".damaged"
	spoolHeaderSize  = len(spoolMagic) + 4
)

func openSpool(cfg *Config) (*spool, error) {
	p := &spool{cfg: cfg, dir: cfg.FS.PathJoin(cfg.Dir, spoolDir), reports: make(map[string]*flight.Report)}
	if err := makeDir(cfg.FS, p.dir); err != nil {
		return nil, err
	}
	names, err := cfg.FS.List(p.dir)
	if err != nil {
		return nil, fmt.Errorf("clusterstore: list %s: %w", p.dir, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) { // incomplete: no caller was told that it is stored
			if err := cfg.FS.Remove(cfg.FS.PathJoin(p.dir, name)); err != nil {
				return nil, fmt.Errorf("clusterstore: remove %s: %w", name, err)
			}
			continue
		}
		if !strings.HasSuffix(name, spoolSuffix) {
			continue
		}
		report, err := p.load(name)
		switch {
		case errors.Is(err, errDamagedReport):
			p.quarantine(name, err)
		case errors.Is(err, errUnknownReport): // the file stays: a newer build proposes it
			p.unknown++
			p.cfg.Logger.Error("clusterstore: a spooled report is kept for a newer version of flightd", "file", name, "error", err)
		case err != nil: // possibly the only record of an effect; the next start may be able to read it
			return nil, fmt.Errorf("clusterstore: read the spooled report %s: %w", name, err)
		default:
			p.reports[name] = report
		}
	}
	return p, nil
}

var (
	errDamagedReport = errors.New("clusterstore: a spooled report is damaged")
	// errUnknownReport: the checksum of a spooled report matches, but this build cannot decode it.
	errUnknownReport = errors.New("clusterstore: a spooled report was written by another version of flightd")
)

func (sp *spool) load(name string) (*flight.Report, error) {
	b, err := readFile(sp.cfg.FS, sp.cfg.FS.PathJoin(sp.dir, name))
	if err != nil {
		return nil, err
	}
	if len(b) < spoolHeaderSize || string(b[:len(spoolMagic)]) != spoolMagic ||
		binary.BigEndian.Uint32(b[len(spoolMagic):]) != crc32.Checksum(b[spoolHeaderSize:], castagnoli()) {
		return nil, fmt.Errorf("%w: checksum mismatch", errDamagedReport)
	}
	c, err := flight.Decode(b[spoolHeaderSize:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknownReport, err)
	}
	report, ok := c.(*flight.Report)
	if !ok {
		return nil, fmt.Errorf("%w: unexpected type %T", errDamagedReport, c)
	}
	return report, nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// add writes a report to disk. When it returns without an error, the report survives the process.
func (sp *spool) add(r *flight.Report, data []byte) (name string, err error) {
	sum := sha256.Sum256(data)
	id := r.Key.FlightID()
	name = hex.EncodeToString(id[:]) + "-" + hex.EncodeToString(sum[:8]) + spoolSuffix
	b := binary.BigEndian.AppendUint32([]byte(spoolMagic), crc32.Checksum(data, castagnoli()))
	if err := sp.writeReport(name, append(b, data...)); err != nil {
		return "", fmt.Errorf("clusterstore: spool a report: %w", err)
	}
	sp.mu.Lock()
	sp.reports[name] = r
	sp.mu.Unlock()
	if f := sp.cfg.Events.Spooled; f != nil {
		f(r.Key)
	}
	return name, nil
}

// writeReport writes a file atomically. Two callers may write the same report at once, so each uses its own temporary
// file; otherwise one could truncate the bytes that the other was told are durable.
func (sp *spool) writeReport(name string, content []byte) error {
	temp := fmt.Sprintf("%s%d-%s", tempPrefix, sp.tempCount.Add(1), name)
	err := writeFileVia(sp.cfg.FS, sp.dir, temp, name, content)
	if err != nil {
		_ = sp.cfg.FS.Remove(sp.cfg.FS.PathJoin(sp.dir, temp)) // frees disk space; the file may not exist
	}
	return err
}

// remove deletes a committed report. The file is gone already if another caller spooled the same report at the same time.
//
// If the process dies before remove, the next start proposes the report again, which changes nothing.
func (sp *spool) remove(name string) {
	r := sp.untrack(name)
	if err := sp.cfg.FS.Remove(sp.cfg.FS.PathJoin(sp.dir, name)); err != nil && !oserror.IsNotExist(err) {
		sp.cfg.Logger.Warn("clusterstore: remove a spooled report", "key", keyOf(r), "file", name, "error", err)
	}
	if f := sp.cfg.Events.Unspooled; f != nil && r != nil {
		f(r.Key)
	}
}

// untrack removes a report from memory, but not its file.
func (sp *spool) untrack(name string) *flight.Report {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	r := sp.reports[name]
	delete(sp.reports, name)
	return r
}

// keyOf returns the key of a report for log messages; a nil report has none.
func keyOf(r *flight.Report) string {
	if r == nil {
		return ""
	}
	return r.Key.String()
}

// resume proposes the reports that an earlier process left. Close waits for its goroutines.
func (sp *spool) resume(s *Store) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for name, r := range sp.reports {
		s.workers.Add(1)
		go func() {
			defer s.workers.Done()
			if reply, ok := s.proposeUntilCommitted(r, name, nil); ok {
				s.publishLate(r, reply)
			}
		}()
	}
}

// Spooled returns how many reports on this node's disk wait to be committed.
func (st *storage) Spooled() int {
	st.spool.mu.Lock()
	defer st.spool.mu.Unlock()
	return len(st.spool.reports)
}

// Report proposes the outcome of an attempt. If the commit takes longer than Limits.CommitTimeout, or ctx ends,
// Report writes the report to this node's spool, from which this process or a later one proposes it until it is
// committed. From then on the end of ctx ends only the wait, and the error is effect.ErrPending. After ErrTooLarge and
// ErrClosed nothing is stored.
//
// If the process dies before the report is in the log or the spool, the caller was not answered and still has it.
func (s *Store) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	data, err := s.encode(r)
	if err != nil {
		return flight.Reply{}, err
	}
	p := &proposal{command: r, data: data, done: make(chan error, 1)}
	if s.leading.Load() == nil {
		p.done <- s.notLeaderError()
	} else if err := s.batcher.enqueue(p); err != nil {
		return flight.Reply{}, err
	}
	select {
	case err := <-p.done:
		if err == nil {
			return p.reply, nil
		}
		if errors.Is(err, ErrClosed) {
			return flight.Reply{}, err
		}
		p.done <- err // for reportLater
	case <-s.commitTimeout.Context().Done():
	case <-ctx.Done():
	}
	return s.reportLater(ctx, p, r)
}

// reportLater writes a report to the spool and waits for its commit until ctx ends. Close waits for its goroutine.
func (s *Store) reportLater(ctx context.Context, p *proposal, r *flight.Report) (flight.Reply, error) {
	name, err := s.spool.add(r, p.data)
	if err != nil {
		s.cfg.Logger.Error("clusterstore: write a report to the spool", "key", r.Key.String(), "error", err)
	}
	if !s.background.Enter() {
		return flight.Reply{}, s.pendingError(name)
	}
	committed, callerGone := make(chan flight.Reply), make(chan struct{})
	defer close(callerGone)
	go func() {
		defer s.background.Leave()
		defer close(committed)
		if reply, ok := s.proposeUntilCommitted(r, name, p); ok {
			select {
			case committed <- reply:
			case <-callerGone:
				s.publishLate(r, reply)
			}
		}
	}()
	select {
	case reply, ok := <-committed:
		if !ok {
			return flight.Reply{}, s.pendingError(name)
		}
		return reply, nil
	case <-ctx.Done():
		return flight.Reply{}, s.pendingError(name)
	}
}

// publishLate reports a commit whose caller has stopped waiting.
func (s *Store) publishLate(r *flight.Report, reply flight.Reply) {
	if f := s.cfg.Events.ReportedLate; f != nil {
		f(r.Token.Number, r.Outcome, reply)
	}
}

// pendingError returns effect.ErrPending for a spooled report. Without a file the result is unknown (effect.ErrAmbiguous).
func (s *Store) pendingError(name string) error {
	if name == "" {
		return ambiguous(errors.New("the report is not in the spool, and its commit is not confirmed"))
	}
	return effect.ErrPending
}

// proposeUntilCommitted proposes a report until it is committed, then removes it from the spool. It returns false
// when the store closes first. first is a proposal that is already queued, or nil.
func (s *Store) proposeUntilCommitted(r *flight.Report, name string, first *proposal) (flight.Reply, bool) {
	ctx, cancel := s.closeContext()
	defer cancel()
	var reply flight.Reply
	err := error(ErrNotLeader)
	if first != nil {
		reply, err = s.batcher.await(ctx, first)
	}
	data, encodeErr := flight.Encode(r)
	if encodeErr != nil {
		return reply, false // cannot happen: the report was encoded or decoded before
	}
	for err != nil {
		leads := s.leadershipChanged.Next()
		if reply, err = s.proposeOnce(ctx, r, data); err != nil && !s.waitRetry(ctx, leads) {
			return reply, false
		}
	}
	if name != "" {
		s.spool.remove(name)
	}
	return reply, true
}

// closeContext returns a context that ends when the store closes. The returned function ends its goroutine.
func (s *Store) closeContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan struct{})
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); cancel() }
}
