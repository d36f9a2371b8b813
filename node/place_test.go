package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestACopyIsTold: two copies of one data directory that both run know nothing of each other. One that was moved is the same one.
func TestACopyIsTold(t *testing.T) {
	told := func(data string) bool {
		t.Helper()
		var said syncBuffer
		cfg := Dev(data, "127.0.0.1:0")
		cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		if err := openConfig(t, cfg).end(); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(said.String(), "was copied")
	}
	parent := t.TempDir()
	data, moved, copied := filepath.Join(parent, "data"), filepath.Join(parent, "moved"), filepath.Join(parent, "other")
	for _, life := range []string{"first", "second"} {
		if told(data) {
			t.Errorf("its %s start calls it a copy", life)
		}
	}
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	if told(moved) {
		t.Error("what was moved is called a copy")
	}
	if err := os.CopyFS(copied, os.DirFS(moved)); err != nil {
		t.Fatal(err)
	}
	if !told(copied) {
		t.Error("nothing is told of a copy")
	}
	if told(copied) || told(moved) {
		t.Error("what stays where it is is called a copy")
	}
}
