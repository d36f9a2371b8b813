package httpapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All routes are registered in routes(). A route that is registered elsewhere would be undocumented.
func TestRoutesAreRegisteredInOnePlace(t *testing.T) {
	for _, file := range goFiles(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Handle" && method.Sel.Name != "HandleFunc" {
				return true
			}
			if pattern, ok := call.Args[0].(*ast.BasicLit); ok {
				require.Equal(t, `"/"`, pattern.Value, "register %s in routes(), and run make docs", pattern.Value)
			}
			return true
		})
	}
}

// goFiles parses the Go files of a folder, without tests.
func goFiles(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	require.NotEmpty(t, files)
	return files
}

// Flights are read in one place, which shows each caller only the flights of its namespace.
func TestFlightsAreReadInOnePlace(t *testing.T) {
	found := 0
	for _, file := range goFiles(t, ".") {
		for _, decl := range file.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				read, ok := n.(*ast.SelectorExpr)
				if !ok || read.Sel.Name != "Flight" {
					return true
				}
				if from, ok := read.X.(*ast.SelectorExpr); !ok || from.Sel.Name != "ledger" {
					return true
				}
				f, ok := decl.(*ast.FuncDecl)
				require.True(t, ok && slices.Contains([]string{"flightOf", "provedTombstone"}, f.Name.Name), "read flights with flightOf")
				found++
				return true
			})
		}
	}
	require.Equal(t, 2, found)
}
