package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A copied data directory is logged at its first start; a moved one is not.
func TestCopiedDirectoryIsLogged(t *testing.T) {
	warned := func(data string) bool {
		t.Helper()
		var said syncBuffer
		cfg := Dev(data, "127.0.0.1:0")
		cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		if err := openConfig(t, cfg).stopNode(); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(said.String(), "was copied")
	}
	parent := t.TempDir()
	data, moved, copied := filepath.Join(parent, "data"), filepath.Join(parent, "moved"), filepath.Join(parent, "other")
	for _, start := range []string{"first", "second"} {
		if warned(data) {
			t.Errorf("the %s start logs a copy", start)
		}
	}
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	if warned(moved) {
		t.Error("a moved directory is logged as a copy")
	}
	if err := os.CopyFS(copied, os.DirFS(moved)); err != nil {
		t.Fatal(err)
	}
	if !warned(copied) {
		t.Error("a copy is not logged")
	}
	if warned(copied) || warned(moved) {
		t.Error("a directory that was not copied since its last start is logged as a copy")
	}
}
