package node

import (
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestEtcdThatCannotMakeItsLogIsAnError: it panics then, as on a disk that is full. A name that is too long does it, too.
func TestEtcdThatCannotMakeItsLogIsAnError(t *testing.T) {
	dir := t.TempDir()
	for len(dir) < syscall.PathMax-40 {
		dir = filepath.Join(dir, strings.Repeat("d", min(200, syscall.PathMax-41-len(dir))))
	}
	e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, slog.New(slog.DiscardHandler)))
	if err == nil {
		e.close()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "WAL") {
		t.Errorf("the error is %.200v", err)
	}
}
