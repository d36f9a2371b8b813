package client

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/durable"
)

// newSpool returns a spool with one report, and its log.
func newSpool(t *testing.T) (p *spool, name string, log *bytes.Buffer) {
	t.Helper()
	log = new(bytes.Buffer)
	p, err := openSpool(filepath.Join(t.TempDir(), "reports"), slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	name, err = p.store(&spooledReport{Deployment: "d", Key: "default/charge/1", Report: []byte(`{"outcome":"succeeded"}`)})
	require.NoError(t, err)
	p.release(name)
	return p, name, log
}

// A report that cannot be read for a moment, for example because too many files are open, is sent later by the same
// process.
func TestReportThatCannotBeReadForAMoment(t *testing.T) {
	p, name, log := newSpool(t)
	path := filepath.Join(p.dir, name)
	require.NoError(t, os.Rename(path, path+".away"))
	require.NoError(t, os.Mkdir(path, 0o700)) // as good as a file that cannot be opened
	for range 2 {
		_, ok := p.claim(name)
		require.False(t, ok)
	}
	require.Equal(t, 1, strings.Count(log.String(), "cannot be read; it stays"), "it is logged once")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".away", path))
	s, ok := p.claim(name)
	require.True(t, ok)
	require.Equal(t, "default/charge/1", s.Key)
}

// A report counts as waiting until its file is known to be gone. While the folder cannot be read, its session must not
// be closed: another caller could act, or the flight would become in doubt.
func TestReportWaitsWhereTheFolderCannotBeRead(t *testing.T) {
	p, name, _ := newSpool(t)
	require.True(t, p.has(name))
	require.NoError(t, os.Rename(p.dir, p.dir+".away"))
	require.NoError(t, os.WriteFile(p.dir, nil, 0o600)) // as good as a folder that cannot be read
	require.True(t, p.has(name))
	require.NoError(t, os.Remove(p.dir))
	require.NoError(t, os.Rename(p.dir+".away", p.dir))
	p.remove(name, "")
	require.False(t, p.has(name))
}

// The spool directory is resolved when the client is made: a later change of the working directory does not move it.
func TestTheSpoolStaysWhereItWasNamed(t *testing.T) {
	here := t.TempDir()
	t.Chdir(here)
	o, err := newOptions([]Option{WithSpool("reports")})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(here, "reports"), o.spool.dir)
	o, err = newOptions([]Option{WithSpool("")})
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(o.spool.dir))
	o, err = newOptions([]Option{WithoutSpool()})
	require.NoError(t, err)
	require.Empty(t, o.spool.dir)
}

// A folder that somebody has cleared away is made again: a report is kept where it outlives the process.
func TestReportIsKeptWhereTheFolderIsGone(t *testing.T) {
	p, _, log := newSpool(t)
	require.NoError(t, os.RemoveAll(filepath.Dir(p.dir)))
	require.Empty(t, p.files())
	require.Empty(t, log.String(), "it is looked at every other second")
	name, err := p.store(&spooledReport{Deployment: "d", Key: "default/charge/2", Report: []byte(`{}`)})
	require.NoError(t, err)
	require.Contains(t, p.files(), name)
}

// A process that died while it wrote a report leaves a temporary file. It is removed once it is old enough that no
// process still writes it.
func TestLeftoversAreRemoved(t *testing.T) {
	p, name, _ := newSpool(t)
	old, young := filepath.Join(p.dir, durable.TempPrefix+"1"), filepath.Join(p.dir, "new-2")
	for _, path := range []string{old, young} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	long := time.Now().Add(-2 * maxTempAge)
	require.NoError(t, os.Chtimes(old, long, long))
	require.NoError(t, os.Chtimes(filepath.Join(p.dir, name), long, long))
	_, err := openSpool(p.dir, p.logger)
	require.NoError(t, err)
	require.NoFileExists(t, old)
	require.FileExists(t, young)
	require.FileExists(t, filepath.Join(p.dir, name))
}
