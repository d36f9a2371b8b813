//go:build systems

package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listed is a package as go list describes it, for one system.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // of the standard library's vendored packages
	Standard        bool
}

// TestSystems_Types checks the types of the program for the other system of a release, and the other architecture. It reads the sources, and
// the bodies of this module's functions only, so it takes a tenth of the time of a build. make cross builds for these systems.
func TestSystems_Types(t *testing.T) {
	for _, system := range []string{"linux/amd64", "darwin/arm64"} {
		goos, goarch, _ := strings.Cut(system, "/")
		if goos == runtime.GOOS && goarch == runtime.GOARCH {
			continue // which the tests build
		}
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard", Module+"/cmd/flightd", Module+"/client")
			list.Env, list.Stderr = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch), os.Stderr
			out, err := list.Output()
			require.NoError(t, err)
			checked := map[string]*types.Package{"unsafe": types.Unsafe}
			d := json.NewDecoder(strings.NewReader(string(out)))
			for { // a package comes after those that it imports
				var p listed
				if err := d.Decode(&p); errors.Is(err, io.EOF) {
					break
				} else {
					require.NoError(t, err)
				}
				if p.ImportPath == "unsafe" {
					continue
				}
				checked[p.ImportPath] = checkTypes(t, &p, goarch, checked)
			}
			require.Contains(t, checked, Module+"/node")
		})
	}
}

// imports finds the packages that one imports among those that were checked before.
type imports struct {
	of      *listed
	checked map[string]*types.Package
}

func (i imports) Import(path string) (*types.Package, error) {
	if mapped := i.of.ImportMap[path]; mapped != "" {
		path = mapped
	}
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return nil, errors.New(path + " is not listed")
}

func checkTypes(t *testing.T, p *listed, goarch string, checked map[string]*types.Package) *types.Package {
	ours := within(p.ImportPath, Module)
	files, set := make([]*ast.File, 0, len(p.GoFiles)), token.NewFileSet()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	var bad []error
	config := types.Config{Importer: imports{p, checked}, Sizes: types.SizesFor("gc", goarch), IgnoreFuncBodies: !ours,
		Error: func(err error) { bad = append(bad, err) }}
	pkg, _ := config.Check(p.ImportPath, set, files, nil) // its error is the first of bad
	if ours {
		require.Empty(t, bad, p.ImportPath)
	}
	return pkg
}
