// Package plant has bugs to plant in flightd, one at a time: an experiment of package cluster that does not find a planted bug proves nothing.
//
// A bug is a few edits of source files. Build compiles them with an overlay, so no file of the repository is changed, and a build that is cut
// short leaves nothing but a temporary directory. The edits of most bugs are in the nodes; those of a bug with Callers are in the client
// library, so the program of the experiment, which has the callers and workers in Go, is to be built with them.
package plant

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Bug is a bug in flightd.
type Bug struct {
	Name    string
	Edits   []Edit
	Rule    string // the promise that it breaks
	Faults  string // that bring it out
	Callers bool   // the bug is in the client library, not in the nodes
	// Test is a package, and the name of a test in it that fails with the bug: the bug is real. "": no test in one process shows it.
	Test string
}

// Edit replaces the only occurrence of Old in a file by New.
type Edit struct {
	File string // from the root of the repository
	Old  string
	New  string
}

// The faults that bring bugs out: parts of the names of faults of package cluster, with commas between.
const (
	ShortFreeze   = "worker stands still for 0.5"              // which ends no session: the bug shows without a fault
	KillCallers   = "worker killed"                            // while effects run
	FreezeCallers = "callers frozen,worker stands still for 3" // for longer than a session lives
	CutCallers    = "callers cut off"                          // from all nodes, and not from the provider, for longer than a session lives
	KillNode      = "node killed"
	KillLeader    = "node killed,node stopped"
	CutLedger     = "node cut off from the ledger alone" // callers still reach it
	CutFollower   = "node cut off"
	LateLists     = "provider acts after,provider loses" // it lists an effect later than it happened, by less than the settle delay
	StoredErrors  = "provider answers 500"               // for ever: a key is sent again until its window is over
	ClockAhead    = "clock"                              // of one node, by hours
	RaiseEpoch    = "lease epoch"                        // by an operator, while effects run
)

// Overlay writes the edited files of a bug, and the file for the flag -overlay, into a directory, and returns the path of that file.
func Overlay(b *Bug, root, dir string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	files := make(map[string]string) // the edited file of each source
	for _, e := range b.Edits {
		source := filepath.Join(root, e.File)
		code, err := os.ReadFile(cmp.Or(files[source], source))
		if err != nil {
			return "", fmt.Errorf("plant %q: %w", b.Name, err)
		}
		if n := bytes.Count(code, []byte(e.Old)); n != 1 {
			return "", fmt.Errorf("plant %q: %s has the code to replace %d times: %q", b.Name, e.File, n, e.Old)
		}
		if files[source] == "" {
			files[source] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(files), filepath.Base(e.File)))
		}
		if err := os.WriteFile(files[source], bytes.Replace(code, []byte(e.Old), []byte(e.New), 1), 0o600); err != nil {
			return "", fmt.Errorf("plant %q: %w", b.Name, err)
		}
	}
	table, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, table, 0o600)
}

// Build builds flightd with a bug, or the program in the folder chaos if the bug is in the client library. root is the root of the
// repository, and out the path of the binary.
func Build(ctx context.Context, b Bug, root, out string) (err error) {
	dir, err := os.MkdirTemp("", "flightd-plant-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := Overlay(&b, root, dir)
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	module, program := root, "./cmd/flightd"
	if b.Callers {
		module, program = filepath.Join(root, "chaos"), "."
	}
	build := exec.CommandContext(ctx, "go", "build", "-C", module, "-overlay", overlay, "-o", out, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("plant %q: %w: %s", b.Name, err, said)
	}
	return nil
}
