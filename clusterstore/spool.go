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

	"github.com/flightd/flightd/flight"
)

// spool keeps reports that the ledger has not taken yet: one file each, fsynced, proposed until it is committed, also
// after a restart. A report is all that is known of an effect that happened, so it must not depend on a process.
type spool struct {
	cfg *Config
	dir string

	temps atomic.Uint64 // files begun

	mu   sync.Mutex
	kept map[string]*flight.Report // by file
}

// A file of the spool is this, a checksum of the rest, and an encoded report.
const (
	spoolMagic  = "FDR1"
	spoolSuffix = ".report"
	spoolBad    = ".damaged"
	spoolHead   = len(spoolMagic) + 4
)

func openSpool(cfg *Config) (*spool, error) {
	p := &spool{cfg: cfg, dir: cfg.FS.PathJoin(cfg.Dir, spoolDir), kept: make(map[string]*flight.Report)}
	if err := makeDir(cfg.FS, p.dir); err != nil {
		return nil, err
	}
	names, err := cfg.FS.List(p.dir)
	if err != nil {
		return nil, fmt.Errorf("clusterstore: list %s: %w", p.dir, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) { // nobody was told that it is kept
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
		case errors.Is(err, errSpooled):
			p.putAside(name, err)
		case err != nil: // what cannot be read now may be all that is known of an effect: the next start may read it
			return nil, fmt.Errorf("clusterstore: read the spooled report %s: %w", name, err)
		default:
			p.kept[name] = report
		}
	}
	return p, nil
}

// errSpooled says of a spooled report that nobody will ever be able to read it.
var errSpooled = errors.New("clusterstore: a spooled report is damaged")

func (p *spool) load(name string) (*flight.Report, error) {
	b, err := readFile(p.cfg.FS, p.cfg.FS.PathJoin(p.dir, name))
	if err != nil {
		return nil, err
	}
	if len(b) < spoolHead || string(b[:len(spoolMagic)]) != spoolMagic ||
		binary.BigEndian.Uint32(b[len(spoolMagic):]) != crc32.Checksum(b[spoolHead:], castagnoli()) {
		return nil, fmt.Errorf("%w: it does not have its checksum", errSpooled)
	}
	c, err := flight.Decode(b[spoolHead:])
	if errors.Is(err, flight.ErrNewerCodec) {
		return nil, fmt.Errorf("%w: %w", ErrNewer, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSpooled, err)
	}
	report, ok := c.(*flight.Report)
	if !ok {
		return nil, fmt.Errorf("%w: it is a %T", errSpooled, c)
	}
	return report, nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// keep writes a report to disk. When it returns without error the report outlives this process.
func (p *spool) keep(r *flight.Report, data []byte) (name string, err error) {
	sum := sha256.Sum256(data)
	id := r.Key.FlightID()
	name = hex.EncodeToString(id[:]) + "-" + hex.EncodeToString(sum[:8]) + spoolSuffix
	b := binary.BigEndian.AppendUint32([]byte(spoolMagic), crc32.Checksum(data, castagnoli()))
	if err := p.write(name, append(b, data...)); err != nil {
		return "", fmt.Errorf("clusterstore: spool a report: %w", err)
	}
	p.mu.Lock()
	p.kept[name] = r
	p.mu.Unlock()
	if f := p.cfg.Events.Spooled; f != nil {
		f(r.Key)
	}
	return name, nil
}

// write makes a file appear whole. Whoever writes the same report at the same time writes to a file of its own: the two
// must not take each other's bytes away before one of them is told that they are kept.
func (p *spool) write(name string, content []byte) error {
	temp := fmt.Sprintf("%s%d-%s", tempPrefix, p.temps.Add(1), name)
	err := writeFileBy(p.cfg.FS, p.dir, temp, name, content)
	if err != nil {
		_ = p.cfg.FS.Remove(p.cfg.FS.PathJoin(p.dir, temp)) // a full disk has no room for it; it may be gone
	}
	return err
}

// drop removes a report that is committed. If the process dies before it, the report is proposed once more, which
// changes nothing.
func (p *spool) drop(name string) {
	r := p.forget(name)
	if err := p.cfg.FS.Remove(p.cfg.FS.PathJoin(p.dir, name)); err != nil {
		p.cfg.Logger.Warn("clusterstore: remove a spooled report", "key", keyOf(r), "file", name, "error", err)
	}
	if f := p.cfg.Events.Unspooled; f != nil && r != nil {
		f(r.Key)
	}
}

// forget lets go of a report, but not of its file.
func (p *spool) forget(name string) *flight.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.kept[name]
	delete(p.kept, name)
	return r
}

// keyOf is for the log.
func keyOf(r *flight.Report) string {
	if r == nil {
		return ""
	}
	return r.Key.String()
}

// resume proposes what an earlier process left.
func (p *spool) resume(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, r := range p.kept {
		s.workers.Add(1)
		go func() {
			defer s.workers.Done()
			if reply, ok := s.carry(r, name, nil); ok {
				s.late(r, reply)
			}
		}()
	}
}

// Spooled is how many reports wait on this node's disk to be committed.
func (s *Store) Spooled() int {
	s.spool.mu.Lock()
	defer s.spool.mu.Unlock()
	return len(s.spool.kept)
}

// Report brings the outcome of an attempt into the ledger. If that takes longer than Guard.Patience, or ctx ends, the
// report is written to this node's disk and proposed until it is committed, also by a later process. ctx then ends
// only the wait: the error is ErrPending. ErrTooLarge and ErrClosed say that nothing was kept.
func (s *Store) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	data, err := s.encode(r)
	if err != nil {
		return flight.Reply{}, err
	}
	p := &proposal{command: r, data: data, done: make(chan error, 1)}
	if s.leading.Load() == nil {
		p.done <- s.notLeading()
	} else if err := s.packer.enqueue(p); err != nil {
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
		p.done <- err // for the carrier
	case <-s.patience.Context().Done():
	case <-ctx.Done():
	}
	return s.reportLater(ctx, p, r)
}

// reportLater spools a report that could not be committed at once and waits for it as long as ctx allows.
func (s *Store) reportLater(ctx context.Context, p *proposal, r *flight.Report) (flight.Reply, error) {
	name, err := s.spool.keep(r, p.data)
	if err != nil {
		s.cfg.Logger.Error("clusterstore: a report could not be spooled", "key", r.Key.String(), "error", err)
	}
	if !s.guests.Enter() {
		return flight.Reply{}, s.pending(name)
	}
	carried, left := make(chan flight.Reply), make(chan struct{})
	defer close(left)
	go func() {
		defer s.guests.Leave()
		defer close(carried)
		if reply, ok := s.carry(r, name, p); ok {
			select {
			case carried <- reply:
			case <-left:
				s.late(r, reply)
			}
		}
	}()
	select {
	case reply, ok := <-carried:
		if !ok {
			return flight.Reply{}, s.pending(name)
		}
		return reply, nil
	case <-ctx.Done():
		return flight.Reply{}, s.pending(name)
	}
}

// late tells of a report that was committed behind its caller's back.
func (s *Store) late(r *flight.Report, reply flight.Reply) {
	if f := s.cfg.Events.Late; f != nil {
		f(r.Token.Number, r.Outcome, reply)
	}
}

// pending says what became of a report whose caller waits no longer.
func (s *Store) pending(name string) error {
	if name == "" {
		return &AmbiguousError{Cause: errors.New("the report is neither known to be committed nor in the spool")}
	}
	return ErrPending
}

// carry proposes a report until the ledger has answered or the store closes. first is the try that is already on its way.
func (s *Store) carry(r *flight.Report, name string, first *proposal) (flight.Reply, bool) {
	ctx, cancel := s.lifetime()
	defer cancel()
	var reply flight.Reply
	err := error(ErrNotLeader)
	if first != nil {
		reply, err = s.packer.await(ctx, first)
	}
	data, encodeErr := flight.Encode(r)
	if encodeErr != nil {
		return reply, false // it was decoded or encoded before
	}
	for err != nil {
		leads := s.leads.next()
		if reply, err = s.try(ctx, r, data); err != nil && !s.pause(ctx, leads) {
			return reply, false
		}
	}
	if name != "" {
		s.spool.drop(name)
	}
	return reply, true
}

// lifetime is a context that ends when the store closes.
func (s *Store) lifetime() (context.Context, context.CancelFunc) {
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
