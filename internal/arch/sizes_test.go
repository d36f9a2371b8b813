package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The largest sizes, without tests. A larger type does several things: what is one concern becomes a small type of its own. An
// interface that only embeds others, each within the limit, has no limit.
const (
	maxMethods          = 50 // of a type
	maxMethodFiles      = 10 // with methods of one type
	maxInterfaceMethods = 6
	maxSettings         = 12 // fields of a struct with settings
)

// larger returns what may be larger than the limits, with the reason.
func larger() map[string]string {
	return map[string]string{
		"flight.transition":      "each rule of a command is a method, and they share one command's state",
		"flight/flighttest.step": "each invariant of a transition is a method, as in flight.transition",
	}
}

// settings matches the names of structs with settings.
var settings = regexp.MustCompile(`([cC]onfig|[sS]ettings|[oO]ptions)$`)

// size counts what the limits bound. It has one entry for each type.
type size struct {
	methods  int
	files    map[string]bool // with methods
	declared int             // methods of an interface by their own names, 1 for each that it embeds beside them
	fields   int             // of a struct with settings
}

// sizesOf adds the sizes of the types that one file declares or has methods of.
func sizesOf(f *ast.File, pkg, file string, sizes map[string]*size) {
	of := func(name string) *size {
		name = pkg + "." + name
		if sizes[name] == nil {
			sizes[name] = &size{files: make(map[string]bool)}
		}
		return sizes[name]
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				s := of(baseType(n.Recv.List[0].Type))
				s.methods++
				s.files[file] = true
			}
		case *ast.TypeSpec:
			switch t := n.Type.(type) {
			case *ast.InterfaceType:
				of(n.Name.Name).declared = interfaceSize(t)
			case *ast.StructType:
				if settings.MatchString(n.Name.Name) {
					of(n.Name.Name).fields = fieldCount(t.Fields)
				}
			}
		}
		return true
	})
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

// tooLarge names the limits that a size exceeds.
func (s *size) tooLarge() (why []string) {
	for _, limit := range []struct {
		what     string
		is, most int
	}{
		{"methods", s.methods, maxMethods}, {"files with methods", len(s.files), maxMethodFiles},
		{"methods of an interface", s.declared, maxInterfaceMethods}, {"settings", s.fields, maxSettings},
	} {
		if limit.is > limit.most {
			why = append(why, limit.what)
		}
	}
	return why
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
	exceptions := larger()
	for name, s := range sizes {
		if why := s.tooLarge(); len(why) > 0 {
			require.Contains(t, exceptions, name, "%s is too large: %v: %+v", name, why, *s)
			delete(exceptions, name)
		}
	}
	require.Empty(t, exceptions, "these types are within the limits")
}

func TestSizes_OfAFile(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
type T struct{}
func (t *T) A() {}
func (T) B() {}
type E interface { I; J; K; L; M; N; O }
type I interface { A(); B(); C(); E; F(); G(); H() }
type listConfig struct { a, b int; T }
type other struct { a int }`, parser.SkipObjectResolution)
	require.NoError(t, err)
	sizes := make(map[string]*size)
	sizesOf(f, "x", "x.go", sizes)
	require.Equal(t, &size{methods: 2, files: map[string]bool{"x.go": true}}, sizes["x.T"])
	require.Zero(t, sizes["x.E"].declared)
	require.Equal(t, []string{"methods of an interface"}, sizes["x.I"].tooLarge())
	require.Equal(t, 3, sizes["x.listConfig"].fields)
	require.NotContains(t, sizes, "x.other")
	require.Equal(t, []string{"methods", "files with methods", "settings"}, (&size{
		methods: maxMethods + 1, fields: maxSettings + 1,
		files: map[string]bool{"1": true, "2": true, "3": true, "4": true, "5": true, "6": true, "7": true, "8": true, "9": true, "10": true, "11": true},
	}).tooLarge())
}
