package client

import (
	"bytes"
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

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
)

// spool stores reports that no server has stored yet, each in a file of its own, with mode 0600 and fsynced. A report
// may be the only record of an effect that has happened, so it has to outlive the process. Several processes may share
// the directory: the server stores a report once, however often it is sent.
type spool struct {
	dir    string // "": no disk
	logger *slog.Logger

	mu                 sync.Mutex                // guards the maps
	claimed            map[string]struct{}       // reports that a goroutine of this process is sending
	reportedUnreadable map[string]struct{}       // files already logged as unreadable
	unspooled          map[string]*spooledReport // reports that could not be written to disk
}

// spooledReport is the content of a file, after the magic and a checksum.
type spooledReport struct {
	Deployment string    `json:"deployment"`
	Key        string    `json:"key"`
	At         time.Time `json:"at"`
	Report     []byte    `json:"report"` // the body of the request, byte for byte
}

// ErrNotSpooled is wrapped by the cause of an *Unrecorded whose report is not on disk: it is lost with this process.
var ErrNotSpooled = errors.New("the report is not on disk")

const (
	spoolMagic    = "FDC1" // with the number of the format
	spoolHead     = len(spoolMagic) + 4
	spoolSuffix   = ".report"
	spoolDamaged  = ".damaged"
	spoolRejected = ".rejected"
	spoolTemp     = "new-" // begins the temporary names of the other clients
)

// maxTempAge is the age after which no process still writes a temporary file.
const maxTempAge = time.Hour

func openSpool(dir string, logger *slog.Logger) (*spool, error) {
	p := &spool{dir: dir, logger: logger, claimed: make(map[string]struct{}), reportedUnreadable: make(map[string]struct{}), unspooled: make(map[string]*spooledReport)}
	if dir == "" {
		return p, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the spool: %w", err)
	}
	// Remove the temporary files of processes that died before the rename. Such a file may be incomplete, and its process
	// had not told its caller that the report was stored.
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		temporary := strings.HasPrefix(e.Name(), durable.TempPrefix) || strings.HasPrefix(e.Name(), spoolTemp)
		if err == nil && temporary && time.Since(info.ModTime()) > maxTempAge {
			_ = os.Remove(filepath.Join(dir, e.Name())) // on error the next client tries again
		}
	}
	return p, nil
}

// names lists all reports of the spool.
func (sp *spool) names() []string { return append(sp.unspooledNames(), sp.files()...) }

// unspooledNames lists the reports that are in memory only.
func (sp *spool) unspooledNames() []string {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return slices.Collect(maps.Keys(sp.unspooled))
}

// has reports whether a report is still in the spool; "" is none. When the disk cannot be read, it returns true.
func (sp *spool) has(name string) bool {
	if name == "" {
		return false
	}
	sp.mu.Lock()
	held := sp.unspooled[name] != nil
	sp.mu.Unlock()
	if held || sp.dir == "" {
		return held
	}
	_, err := os.Lstat(filepath.Join(sp.dir, name))
	return !errors.Is(err, os.ErrNotExist)
}

// files lists the files that hold reports.
func (sp *spool) files() []string {
	if sp.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(sp.dir)
	if errors.Is(err, os.ErrNotExist) { // the directory was removed
		return nil
	}
	if err != nil {
		sp.logger.Warn("flightd: the spool cannot be read", "spool", sp.dir, "error", err)
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

// store writes a report to disk. Without an error the report outlives this process; with one it is kept in memory. The
// caller has claimed the report until it calls remove, quarantine or release.
func (sp *spool) store(s *spooledReport) (name string, err error) {
	s.At = time.Now().UTC()
	data, err := encodeSpooled(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(s.Deployment+" "+s.Key+" "), s.Report...))
	name = hex.EncodeToString(sum[:16]) + spoolSuffix
	sp.mu.Lock()
	sp.claimed[name] = struct{}{}
	sp.mu.Unlock()
	err = errors.New("there is no spool: the outcome is lost with this process")
	if sp.dir != "" {
		err = sp.write(name, data)
	}
	if err != nil {
		sp.mu.Lock()
		sp.unspooled[name] = s
		sp.mu.Unlock()
		return name, fmt.Errorf("%w: %w", ErrNotSpooled, err)
	}
	return name, nil
}

func encodeSpooled(s *spooledReport) ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32([]byte(spoolMagic), sum), body...), nil
}

// errLaterReport means that a file is intact, and of a version whose reports this one cannot read completely.
var errLaterReport = errors.New("it was written by a later version of flightd: run that version to send it")

// decodeSpooled reads a file. After errLaterReport the file has to stay; after any other error it is damaged.
func decodeSpooled(b []byte) (*spooledReport, error) {
	if isLaterFormat(b) {
		return nil, errLaterReport
	}
	if len(b) < spoolHead || string(b[:len(spoolMagic)]) != spoolMagic ||
		binary.BigEndian.Uint32(b[len(spoolMagic):]) != crc32.Checksum(b[spoolHead:], crc32.MakeTable(crc32.Castagnoli)) {
		return nil, errors.New("spooled report: checksum mismatch")
	}
	s := new(spooledReport)
	strict := json.NewDecoder(bytes.NewReader(b[spoolHead:]))
	strict.DisallowUnknownFields()
	err := strict.Decode(s)
	if err == nil && strict.More() {
		err = errors.New("it has several documents")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLaterReport, err)
	}
	if _, err := flight.ParseStoredKey(s.Key); err != nil || !json.Valid(s.Report) {
		return nil, fmt.Errorf("%w: its key or report is of another form", errLaterReport)
	}
	return s, nil
}

// write creates the file atomically and durably. After a crash it is complete or absent.
func (sp *spool) write(name string, data []byte) error {
	if err := os.MkdirAll(sp.dir, 0o700); err != nil { // the directory may have been removed
		return err
	}
	return durable.Replace(filepath.Join(sp.dir, name), data, 0o600)
}

// claim reads a report, unless another goroutine has claimed it. A damaged file is quarantined. A file that cannot be
// read now, or not completely by this version, stays under its name.
func (sp *spool) claim(name string) (*spooledReport, bool) {
	sp.mu.Lock()
	_, claimed := sp.claimed[name]
	sp.claimed[name] = struct{}{}
	report := sp.unspooled[name]
	sp.mu.Unlock()
	if claimed || report != nil {
		return report, !claimed
	}
	b, err := os.ReadFile(filepath.Join(sp.dir, name))
	if errors.Is(err, os.ErrNotExist) { // another process has sent it
		sp.release(name)
		return nil, false
	}
	if err != nil {
		sp.skipUnreadable(name, err)
		return nil, false
	}
	s, err := decodeSpooled(b)
	switch {
	case errors.Is(err, errLaterReport):
		sp.skipUnreadable(name, err)
	case err != nil:
		sp.quarantineFile(name, spoolDamaged, "", err)
	}
	return s, err == nil
}

// isLaterFormat reports whether b is a report in the format of a later version.
func isLaterFormat(b []byte) bool {
	last := len(spoolMagic) - 1
	return len(b) > last && string(b[:last]) == spoolMagic[:last] && b[last] > spoolMagic[last] && b[last] <= '9'
}

// skipUnreadable releases a file that cannot be read now, and logs it once.
func (sp *spool) skipUnreadable(name string, why error) {
	defer sp.release(name)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if _, reported := sp.reportedUnreadable[name]; !reported {
		sp.reportedUnreadable[name] = struct{}{}
		sp.logger.Error("flightd: a spooled report cannot be read; it stays in the spool", "file", filepath.Join(sp.dir, name), "error", why)
	}
}

// release ends the claim of a report.
func (sp *spool) release(name string) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	delete(sp.claimed, name)
}

// remove deletes a report that the server has stored. If the process dies before that, the report is sent once more,
// which changes nothing.
func (sp *spool) remove(name, key string) {
	defer sp.release(name)
	if sp.forgetUnspooled(name) {
		return
	}
	if err := os.Remove(filepath.Join(sp.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		sp.logger.Warn("flightd: a recorded report cannot be removed from the spool", "key", key, "file", name, "error", err)
	}
}

// describePlace says where a report is.
func (sp *spool) describePlace(name string) string {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.unspooled[name] != nil {
		return "its report is not on disk, and is lost with this process"
	}
	return "its report waits in " + sp.dir + " and is sent on"
}

// quarantine keeps a report that the server has rejected for good, and says where. A person has to read it.
func (sp *spool) quarantine(name, key string, why error) string {
	if sp.forgetUnspooled(name) {
		sp.logger.Error("flightd: a report was rejected, and is not on disk", "key", key, "error", why)
		sp.release(name)
		return "its report was rejected, and is not on disk"
	}
	return "a person must look at it: " + sp.quarantineFile(name, spoolRejected, key, why)
}

// forgetUnspooled removes a report from memory, and reports whether it was there.
func (sp *spool) forgetUnspooled(name string) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	_, held := sp.unspooled[name]
	delete(sp.unspooled, name)
	return held
}

// quarantineFile renames a file and returns its new path. key is "" when the file cannot be read.
func (sp *spool) quarantineFile(name, suffix, key string, why error) string {
	defer sp.release(name)
	path := filepath.Join(sp.dir, name)
	err := os.Rename(path, path+suffix)
	sp.logger.Error("flightd: a report is quarantined; a person must look at it", "key", key,
		"file", path+suffix, "error", errors.Join(why, err))
	return path + suffix
}
