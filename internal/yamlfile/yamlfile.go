// Package yamlfile parses YAML files.
package yamlfile

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Parse returns the bodies of the documents that have content. The library's parser ignores everything behind an empty document, so
// Parse first removes the separators of empty documents, and the byte order mark with which some editors begin a file.
func Parse(data []byte) (bodies []ast.Node, err error) {
	var tokens token.Tokens
	for _, t := range lexer.Tokenize(strings.TrimPrefix(string(data), "\ufeff")) {
		if t.Type == token.CommentType {
			continue
		}
		if n := len(tokens); n > 0 && tokens[n-1].Type == token.DocumentHeaderType && (t.Type == token.DocumentHeaderType || t.Type == token.DocumentEndType) {
			tokens = tokens[:n-1]
		}
		tokens = append(tokens, t)
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType && doc.Body.Type() != ast.NullType {
			bodies = append(bodies, doc.Body)
		}
	}
	return bodies, nil
}
