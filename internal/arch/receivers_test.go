package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// words splits an identifier by case: HTTPServer into "http" and "server".
func words(identifier string) []string {
	var all []string
	start := 0
	runes := []rune(identifier)
	for i := 1; i < len(runes); i++ {
		afterLower := unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1])
		beforeLower := unicode.IsUpper(runes[i]) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if afterLower || beforeLower {
			all = append(all, strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
	return append(all, strings.ToLower(string(runes[start:])))
}

// receiverFits reports whether a receiver's letters come from the name of its type: initials of its words, as in mb or b for
// memBatch, an initial and s for a plural, the beginning of a word, or the end of the name.
func receiverFits(receiver, typ string) bool {
	receiver = strings.ToLower(receiver)
	initials := ""
	for _, w := range words(typ) {
		initials += w[:1]
		if strings.HasPrefix(w, receiver) || strings.HasSuffix(w, "s") && receiver == w[:1]+"s" {
			return true
		}
	}
	return strings.Contains(initials, receiver) || len(receiver) >= 3 && strings.HasSuffix(strings.ToLower(typ), receiver)
}

func TestReceiverFits(t *testing.T) {
	for _, fits := range [][2]string{{"b", "memBatch"}, {"mb", "memBatch"}, {"ss", "sessions"}, {"srv", "srv"}, {"ids", "requestIDs"}, {"te", "terminal"}} {
		require.True(t, receiverFits(fits[0], fits[1]), fits)
	}
	for _, foreign := range [][2]string{{"t", "memBatch"}, {"ma", "memBatch"}, {"m", "fsm"}, {"k", "batcher"}, {"w", "Fake"}, {"this", "store"}} {
		require.False(t, receiverFits(foreign[0], foreign[1]), foreign)
	}
}

// baseType returns the name of a receiver's type.
func baseType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return baseType(e.X)
	case *ast.IndexListExpr:
		return baseType(e.X)
	case *ast.IndexExpr:
		return baseType(e.X)
	default:
		return e.(*ast.Ident).Name
	}
}

// TestReceivers_AreNamedAfterTheirTypes fails on a receiver whose letters do not come from its type's name, and on a type with
// receivers of two names. An error may be e, and a command of package flight, which has Target, may be c.
// Generated code is left out.
func TestReceivers_AreNamedAfterTheirTypes(t *testing.T) {
	type typeKey struct{ folder, pkg, name string }
	receivers := make(map[typeKey]map[string]string) // receiver: a file with it
	methods := make(map[typeKey]map[string]bool)
	for _, s := range sources(t) {
		mode := parser.SkipObjectResolution | parser.ParseComments
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", s.file), nil, mode)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			k := typeKey{s.pkg, f.Name.Name, baseType(fn.Recv.List[0].Type)}
			if methods[k] == nil {
				methods[k], receivers[k] = make(map[string]bool), make(map[string]string)
			}
			methods[k][fn.Name.Name] = true
			if names := fn.Recv.List[0].Names; len(names) == 1 && names[0].Name != "_" && !ast.IsGenerated(f) {
				receivers[k][names[0].Name] = s.file
			}
		}
	}
	require.NotEmpty(t, receivers)
	for k, names := range receivers {
		for name, file := range names {
			usual := methods[k]["Error"] && name == "e" || methods[k]["Target"] && name == "c"
			require.True(t, usual || receiverFits(name, k.name), "%s: %s is no receiver for %s", file, name, k.name)
		}
		require.LessOrEqual(t, len(names), 1, "%s.%s has receivers of several names: %v", k.folder, k.name, names)
	}
}
