package client

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// spool keeps reports that no server has taken yet: one file each, readable by its owner alone, fsynced. A report is
// all that is known of an effect that happened, so it must not depend on a process. Several processes may share the
// directory: a report that two of them send is taken once.
type spool struct {
	dir    string // "": nothing is kept
	logger *slog.Logger

	mu   sync.Mutex
	busy map[string]struct{} // files that somebody in this process deals with
	told map[string]struct{} // files of which a person was told that they cannot be read
	held map[string]*spooled // what the disk did not take
}

// spooled is what a file holds: this, behind the magic and a checksum.
type spooled struct {
	Deployment string    `json:"deployment"`
	Key        string    `json:"key"`
	At         time.Time `json:"at"`
	Report     []byte    `json:"report"` // the body of the request, byte for byte
}

// ErrNotKept is inside the cause of *Unrecorded when no disk has the report: it is lost with this process.
var ErrNotKept = errors.New("the report is not on disk")

const (
	spoolMagic   = "FDC1" // with the number of the format
	spoolHead    = len(spoolMagic) + 4
	spoolSuffix  = ".report"
	spoolBad     = ".damaged"
	spoolRefused = ".refused"
	spoolBegun   = "new-"
)

// leftoverAge is how old a file is that no living process still writes.
const leftoverAge = time.Hour

func openSpool(dir string, logger *slog.Logger) (*spool, error) {
	p := &spool{dir: dir, logger: logger, busy: make(map[string]struct{}), told: make(map[string]struct{}), held: make(map[string]*spooled)}
	if dir == "" {
		return p, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("no place for reports that wait: %w", err)
	}
	// Files are removed that were begun by processes which died before the file had its name: a report in one is not known to be
	// whole, and its process had told nobody that it was kept.
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), spoolBegun) && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(dir, e.Name())) // else the next one that connects tries
		}
	}
	return p, nil
}

// names lists the reports that wait.
func (p *spool) names() []string { return append(p.inMemory(), p.files()...) }

// inMemory lists those of them that no disk has.
func (p *spool) inMemory() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.held))
}

// has reports whether a report waits, as far as can be seen: where the disk does not say that it is gone, it is not.
func (p *spool) has(name string) bool {
	p.mu.Lock()
	held := p.held[name] != nil
	p.mu.Unlock()
	if held || p.dir == "" {
		return held
	}
	_, err := os.Lstat(filepath.Join(p.dir, name))
	return !errors.Is(err, os.ErrNotExist)
}

// files lists the files that hold reports.
func (p *spool) files() []string {
	if p.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, os.ErrNotExist) { // somebody has cleared it away
		return nil
	}
	if err != nil {
		p.logger.Warn("flightd: the spool of reports cannot be read", "spool", p.dir, "error", err)
		return nil
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), spoolSuffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// keep writes a report to disk. When it returns without error the report outlives this process, else it lives as long as
// this process does; it is the caller's until drop, putAside or release.
func (p *spool) keep(s *spooled) (name string, err error) {
	s.At = time.Now().UTC()
	data, err := encodeSpooled(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(s.Deployment+" "+s.Key+" "), s.Report...))
	name = hex.EncodeToString(sum[:16]) + spoolSuffix
	p.mu.Lock()
	p.busy[name] = struct{}{}
	p.mu.Unlock()
	err = errors.New("no spool: the outcome is lost with this process")
	if p.dir != "" {
		err = p.write(name, data)
	}
	if err != nil {
		p.mu.Lock()
		p.held[name] = s
		p.mu.Unlock()
		return name, fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	return name, nil
}

func encodeSpooled(s *spooled) ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32([]byte(spoolMagic), sum), body...), nil
}

func decodeSpooled(b []byte) (*spooled, error) {
	if len(b) < spoolHead || string(b[:len(spoolMagic)]) != spoolMagic ||
		binary.BigEndian.Uint32(b[len(spoolMagic):]) != crc32.Checksum(b[spoolHead:], crc32.MakeTable(crc32.Castagnoli)) {
		return nil, errors.New("a report in the spool does not have its checksum")
	}
	s := new(spooled)
	return s, json.Unmarshal(b[spoolHead:], s)
}

// write makes the file appear whole or not at all.
func (p *spool) write(name string, data []byte) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil { // somebody may have cleared it away
		return err
	}
	temp, err := os.CreateTemp(p.dir, spoolBegun+"*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), filepath.Join(p.dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	dir, err := os.Open(p.dir) // its names must be durable, too
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// claim reads a report, unless somebody in this process deals with it. What is damaged is put aside; what cannot be read
// now, or not by this version, stays as it is.
func (p *spool) claim(name string) (*spooled, bool) {
	p.mu.Lock()
	_, taken := p.busy[name]
	p.busy[name] = struct{}{}
	held := p.held[name]
	p.mu.Unlock()
	if taken || held != nil {
		return held, !taken
	}
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if errors.Is(err, os.ErrNotExist) { // another process was faster
		p.release(name)
		return nil, false
	}
	if err == nil && isLater(b) {
		err = errors.New("a later version of flightd has written it; who has that one delivers it")
	}
	if err != nil {
		p.leave(name, err)
		return nil, false
	}
	s, err := decodeSpooled(b)
	if err != nil {
		p.rename(name, spoolBad, "", err)
		return nil, false
	}
	return s, true
}

// isLater reports whether this is a report in a format of a later version.
func isLater(b []byte) bool {
	last := len(spoolMagic) - 1
	return len(b) > last && string(b[:last]) == spoolMagic[:last] && b[last] > spoolMagic[last] && b[last] <= '9'
}

// leave lets a file lie that cannot be read, for whenever it can be, and says so once.
func (p *spool) leave(name string, why error) {
	defer p.release(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, told := p.told[name]; !told {
		p.told[name] = struct{}{}
		p.logger.Error("flightd: a report cannot be read now, and stays where it is", "file", filepath.Join(p.dir, name), "error", why)
	}
}

// release leaves the file for others.
func (p *spool) release(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, name)
}

// drop removes a report that was taken. If the process dies before it, the report is sent once more, which changes
// nothing.
func (p *spool) drop(name, key string) {
	defer p.release(name)
	if p.forget(name) {
		return
	}
	if err := os.Remove(filepath.Join(p.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.logger.Warn("flightd: a report that was taken cannot be removed", "key", key, "file", name, "error", err)
	}
}

// place says where a report waits.
func (p *spool) place(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[name] != nil {
		return "its report is not on disk, and is lost with this process"
	}
	return "its report waits in " + p.dir + " and is sent on"
}

// putAside keeps a report that no server will ever take, for a person to look at, and says where.
func (p *spool) putAside(name, key string, why error) string {
	if p.forget(name) {
		p.logger.Error("flightd: a report was refused, and the disk did not take it", "key", key, "error", why)
		p.release(name)
		return "its report was refused, and is not on disk"
	}
	return "a person must look at it: " + p.rename(name, spoolRefused, key, why)
}

// forget ends what is held of a report in memory, and answers whether that was it.
func (p *spool) forget(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, held := p.held[name]
	delete(p.held, name)
	return held
}

// rename puts a file aside, and gives its new path. key is "" where it could not be read.
func (p *spool) rename(name, suffix, key string, why error) string {
	defer p.release(name)
	path := filepath.Join(p.dir, name)
	err := os.Rename(path, path+suffix)
	p.logger.Error("flightd: a report is put aside; a person must look at it", "key", key,
		"file", path+suffix, "error", errors.Join(why, err))
	return path + suffix
}

// Spooled is how many reports wait on disk in the client's spool.
func (c *Client) Spooled() int {
	return len(c.spool.files())
}
