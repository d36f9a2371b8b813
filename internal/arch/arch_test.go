package arch

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// source is one Go file with its imports.
type source struct {
	file    string
	pkg     string // relative to the module
	test    bool
	imports []string
}

func sources(t *testing.T) []source {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	var all []source
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && p != root {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		s := source{file: rel, pkg: path.Dir(filepath.ToSlash(rel)), test: strings.HasSuffix(p, "_test.go")}
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, name)
		}
		all = append(all, s)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// layerViolation describes a forbidden import of one package by another; "": the import is allowed.
func layerViolation(from, to string) string {
	a, ok := layerOf(from)
	if !ok {
		return fmt.Sprintf("package %s has no layer: add it to layers()", from)
	}
	b, ok := layerOf(to)
	switch {
	case !ok:
		return fmt.Sprintf("package %s has no layer: add it to layers()", to)
	case a.path == b.path || b.layer < a.layer:
		return ""
	}
	return fmt.Sprintf("%s (layer %d) imports %s (layer %d)", from, a.layer, to, b.layer)
}

func TestImportsGoDownwards(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.pkg == "internal/arch" {
			continue // tests may import packages of their own layer and of higher ones
		}
		for _, i := range s.imports {
			if to, ours := strings.CutPrefix(i, Module+"/"); ours {
				require.Empty(t, layerViolation(s.pkg, to), s.file)
			}
		}
	}
}

func TestLibrariesAreImportedOnlyWhereAllowed(t *testing.T) {
	for _, s := range sources(t) {
		for _, i := range s.imports {
			for _, f := range libraryRules() {
				if within(i, f.library) {
					require.True(t, mayImport(s, f), "%s imports %s", s.file, i)
					break // the first rule that matches is the narrower one
				}
			}
		}
	}
}

func mayImport(s source, f libraryRule) bool {
	packages := f.packages
	if s.test {
		packages = append(packages, f.testPackages...)
	}
	return slices.ContainsFunc(packages, func(r string) bool { return r == "" || within(s.pkg, r) })
}

func TestFlightIsPure(t *testing.T) {
	for _, s := range sources(t) {
		if s.pkg != "flight" || s.test {
			continue
		}
		for _, i := range s.imports {
			require.NotContains(t, []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "sync"}, i, s.file)
			require.False(t, strings.HasPrefix(i, Module) && i != Module+"/internal/strictjson", s.file)
		}
	}
}

func TestClientsStayLight(t *testing.T) {
	for _, pkg := range clientPackages() {
		out, err := exec.Command("go", "list", "-deps", Module+"/"+pkg).Output()
		require.NoError(t, err)
		for dep := range strings.Lines(string(out)) {
			for _, h := range heavyLibraries() {
				require.False(t, within(strings.TrimSpace(dep), h), "%s depends on %s", pkg, dep)
			}
		}
	}
}

func TestRaftVersionsArePinned(t *testing.T) {
	// raft-wal v0.4.0 loses the log, and go mod tidy silently falls back to it: see docs/decisions.
	for _, module := range []string{"../..", "../../chaos"} {
		out, err := exec.Command("go", "list", "-C", module, "-m", "-f", "{{.Path}} {{.Version}}", "all").Output()
		require.NoError(t, err)
		graph := string(out)
		require.Contains(t, graph, "github.com/hashicorp/raft v1.8.0\n")
		require.Contains(t, graph, "go.etcd.io/etcd/client/v3 v3.7.3\n")
		require.Contains(t, graph, "go.etcd.io/etcd/server/v3 v3.7.3\n")
		require.Contains(t, graph, "github.com/cockroachdb/pebble/v2 v2.1.7\n")
		require.NotContains(t, graph, "github.com/hashicorp/raft-wal ")
		require.NotContains(t, graph, "github.com/hashicorp/raft-boltdb ")
	}
}

// The libraries of experiments and benchmarks, and their packages, are no part of the product's module.
func TestChaosIsAModuleOfItsOwn(t *testing.T) {
	out, err := exec.Command("go", "list", "-C", "../..", "-m", "all").Output()
	require.NoError(t, err)
	for _, library := range []string{Module + "/chaos", "github.com/jackc/", "github.com/vishvananda/"} {
		require.NotContains(t, string(out), library)
	}
	require.NoFileExists(t, "../../go.work")
}

func TestLayerViolation(t *testing.T) {
	require.NotEmpty(t, layerViolation("flight", "lease"))
	require.NotEmpty(t, layerViolation("lease", "clusterstore"), "packages of one layer do not import each other")
	require.NotEmpty(t, layerViolation("executor", "httpapi"))
	require.NotEmpty(t, layerViolation("executor", "somewhere/new"))
	require.Empty(t, layerViolation("node", "clusterstore"))
	require.Empty(t, layerViolation("lease/etcdlease", "lease"))
}
