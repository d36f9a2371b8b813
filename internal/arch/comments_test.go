package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// identifier is a word that is a name of the code and no English word: it has an upper-case letter behind a lower-case one.
var identifier = regexp.MustCompile(`^[A-Za-z]*[a-z][A-Z][A-Za-z0-9]*$`)

// TestComments_BeginWithTheirName fails on a doc comment whose first word is the name of something else: a rename that missed it.
func TestComments_BeginWithTheirName(t *testing.T) {
	var wrong []string
	for name, text := range repository(t) {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		check := func(doc *ast.CommentGroup, names ...*ast.Ident) {
			if doc == nil || len(names) == 0 || strings.HasSuffix(name, "_test.go") { // the comment of a test begins with its subject
				return
			}
			first, _, _ := strings.Cut(strings.TrimPrefix(doc.List[0].Text, "// "), " ")
			first = strings.TrimRight(first, ".,:;")
			if identifier.MatchString(first) && !slices.ContainsFunc(names, func(n *ast.Ident) bool { return n.Name == first }) {
				wrong = append(wrong, fmt.Sprintf("%s: the comment of %s begins with %s", files.Position(doc.Pos()), names[0].Name, first))
			}
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Doc, d.Name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						check(s.Doc, s.Name)
						if len(d.Specs) == 1 {
							check(d.Doc, s.Name)
						}
					case *ast.ValueSpec:
						check(s.Doc, s.Names...)
						if len(d.Specs) == 1 {
							check(d.Doc, s.Names...)
						}
					}
				}
			}
		}
	}
	slices.Sort(wrong)
	require.Empty(t, wrong)
}
