package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The largest sizes, without tests. A larger type does several things, and each of them becomes a small type of its own. An
// interface that only embeds others, each within the limit, has no limit.
const (
	maxMethods          = 50 // callable on a value of a type, with the methods of embedded types
	maxMethodFiles      = 10 // with methods of one type
	maxInterfaceMethods = 6
	maxSettings         = 12 // fields of a struct with settings
)

// larger returns the types with more callable methods than maxMethods, and their number. A number may only fall.
func larger() map[string]int {
	return map[string]int{
		"chaos/cluster.bed":      54,
		"chaos/cluster.judge":    63,
		"client.Client":          101,
		"client.jobTransport":    101, // embeds the client
		"client.transport":       101, // embeds the client
		"clusterstore.Store":     128,
		"clusterstore.storage":   59,  // embeds the reader
		"clusterstore.verifier":  63,  // embeds the storage
		"flight.transition":      121, // each rule of a command is a method, and they share one command's state
		"flight/flighttest.step": 62,  // each invariant of a transition is a method, as in flight.transition
		"node.actor":             71,
		"node.monitor":           51,
		"node.notifyLedger":      61, // embeds the ledger and its feed
	}
}

// scattered returns the types with methods in more files than maxMethodFiles.
func scattered() []string { return []string{"flight.transition"} }

// settings matches the names of structs with settings.
var settings = regexp.MustCompile(`([cC]onfig|[sS]ettings|[oO]ptions)$`)

// size counts what the limits bound. It has one entry for each type.
type size struct {
	methods  map[string]bool // by their names, without those of embedded types
	embeds   []string        // types of this repository
	files    map[string]bool // with methods
	declared int             // methods of an interface by their own names, 1 for each that it embeds beside them
	fields   int             // of a struct with settings
}

// sizesOf adds the sizes of the types that one file declares or has methods of.
func sizesOf(f *ast.File, pkg, file string, sizes map[string]*size) {
	of := func(name string) *size {
		name = pkg + "." + name
		if sizes[name] == nil {
			sizes[name] = &size{methods: make(map[string]bool), files: make(map[string]bool)}
		}
		return sizes[name]
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				s := of(baseType(n.Recv.List[0].Type))
				s.methods[n.Name.Name] = true
				s.files[file] = true
			}
		case *ast.TypeSpec:
			switch t := n.Type.(type) {
			case *ast.InterfaceType:
				s := of(n.Name.Name)
				s.declared = interfaceSize(t)
				s.embed(t.Methods, f, pkg)
				for _, m := range t.Methods.List {
					for _, name := range m.Names {
						s.methods[name.Name] = true
					}
				}
			case *ast.StructType:
				of(n.Name.Name).embed(t.Fields, f, pkg)
				if settings.MatchString(n.Name.Name) {
					of(n.Name.Name).fields = fieldCount(t.Fields)
				}
			}
		}
		return true
	})
}

// embed adds the embedded types of l that belong to this repository.
func (s *size) embed(l *ast.FieldList, f *ast.File, pkg string) {
	for _, field := range l.List {
		if len(field.Names) > 0 {
			continue
		}
		typ := field.Type
		if p, ok := typ.(*ast.StarExpr); ok {
			typ = p.X
		}
		if i, ok := typ.(*ast.IndexExpr); ok {
			typ = i.X
		}
		switch typ := typ.(type) {
		case *ast.Ident:
			s.embeds = append(s.embeds, pkg+"."+typ.Name)
		case *ast.SelectorExpr:
			if from, ok := imported(f, typ.X.(*ast.Ident).Name); ok {
				s.embeds = append(s.embeds, from+"."+typ.Sel.Name)
			}
		}
	}
}

// imported returns the package of this repository that f imports under a name, relative to the module.
func imported(f *ast.File, name string) (pkg string, ok bool) {
	for _, i := range f.Imports {
		p, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), Module+"/")
		if ours && (i.Name == nil && path.Base(p) == name || i.Name != nil && i.Name.Name == name) {
			return p, true
		}
	}
	return "", false
}

// callable returns the names of the methods that can be called on a value of a type, embedded ones included. Those of another package must be
// exported. Types of libraries count as empty.
func callable(name string, sizes map[string]*size) map[string]bool {
	all := make(map[string]bool)
	s := sizes[name]
	if s == nil {
		return all
	}
	maps.Copy(all, s.methods)
	pkg := name[:strings.LastIndex(name, ".")]
	for _, e := range s.embeds {
		for m := range callable(e, sizes) {
			if ast.IsExported(m) || strings.HasPrefix(e, pkg+".") && !strings.Contains(e[len(pkg)+1:], ".") {
				all[m] = true
			}
		}
	}
	return all
}

// interfaceSize returns the number of methods of an interface, of which an embedded one is one; 0 for a union of others.
func interfaceSize(t *ast.InterfaceType) (n int) {
	named := false
	for _, m := range t.Methods.List {
		named = named || len(m.Names) > 0
	}
	if !named {
		return 0
	}
	return fieldCount(t.Methods)
}

func fieldCount(l *ast.FieldList) (n int) {
	for _, f := range l.List {
		n += max(1, len(f.Names))
	}
	return n
}

// TestSizes_AreBounded fails on a type that is too large, and on an exception that is not needed any more.
func TestSizes_AreBounded(t *testing.T) {
	sizes := make(map[string]*size)
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", s.file), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		sizesOf(f, s.pkg, s.file, sizes)
	}
	many, files := make(map[string]int), []string{}
	for name, s := range sizes {
		require.LessOrEqual(t, s.declared, maxInterfaceMethods, "methods of the interface %s", name)
		require.LessOrEqual(t, s.fields, maxSettings, "settings of %s", name)
		if len(s.files) > maxMethodFiles {
			files = append(files, name)
		}
		if n := len(callable(name, sizes)); n > maxMethods {
			many[name] = n
		}
	}
	require.Equal(t, larger(), many, "callable methods: more are too many, and fewer lower the figure here")
	require.ElementsMatch(t, scattered(), files, "types with methods in more than %d files", maxMethodFiles)
}

func TestSizes_OfAFile(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
import "github.com/flightd/flightd/y"
type T struct{ E; *y.U; io.Reader }
func (t *T) A() {}
func (T) B() {}
type E interface { I; J; K; L; M; N; O }
type I interface { A(); B(); C(); Z; F(); G(); H() }
type listConfig struct { a, b int; T }
type other struct { a int }`, parser.SkipObjectResolution)
	require.NoError(t, err)
	g, err := parser.ParseFile(token.NewFileSet(), "u.go", "package y\ntype U struct{}\nfunc (U) Open() {}\nfunc (U) hidden() {}", parser.SkipObjectResolution)
	require.NoError(t, err)
	sizes := make(map[string]*size)
	sizesOf(f, "x", "x.go", sizes)
	sizesOf(g, "y", "u.go", sizes)
	require.Equal(t, map[string]bool{"A": true, "B": true}, sizes["x.T"].methods)
	require.Equal(t, map[string]bool{"x.go": true}, sizes["x.T"].files)
	require.Zero(t, sizes["x.E"].declared)
	require.Equal(t, maxInterfaceMethods+1, sizes["x.I"].declared)
	require.Equal(t, 3, sizes["x.listConfig"].fields)
	require.Zero(t, sizes["x.other"].fields)
	var names []string
	for m := range callable("x.T", sizes) {
		names = append(names, m)
	}
	require.ElementsMatch(t, []string{"A", "B", "C", "F", "G", "H", "Open"}, names, "an embedded method counts once, and only if it can be called")
}
