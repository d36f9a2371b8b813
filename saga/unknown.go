package saga

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// UnknownFields is the error of ParseYAML for a definition with fields that no definition has.
type UnknownFields struct {
	Found []Finding // all of them, in the order of their places in the document
	first *wire.Invalid
}

func (e *UnknownFields) Error() string { return e.first.Error() }
func (e *UnknownFields) Unwrap() error { return e.first }

// unknownFields returns the fields of a definition in JSON that a Definition does not have, each with the name that is probably meant.
func unknownFields(data []byte) (found []Finding) {
	if document, err := decode(data); err == nil {
		addUnknown(&found, document, reflect.TypeFor[Definition](), "")
	}
	return found
}

func addUnknown(found *[]Finding, value any, t reflect.Type, at string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case []any:
		for i := 0; t.Kind() == reflect.Slice && i < len(value); i++ {
			addUnknown(found, value[i], t.Elem(), fmt.Sprintf("%s/%d", at, i))
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return
		}
		known := make(map[string]reflect.Type)
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				known[name] = f.Type
			}
		}
		for _, name := range sortedNames(value) {
			pointer := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			if inner, ok := known[name]; ok {
				addUnknown(found, value[name], inner, pointer)
				continue
			}
			hint := "remove the field or fix its spelling"
			if meant := nearest(name, slices.Sorted(maps.Keys(known))); meant != "" {
				hint = "do you mean " + meant + "?"
			}
			*found = append(*found, Finding{Pointer: pointer, Detail: fmt.Sprintf("%s %q", strictjson.UnknownField, name), Hint: hint})
		}
	}
}

// nearest returns the word that differs least from a name, or "" if none is similar.
func nearest(name string, words []string) (meant string) {
	least := 1 + len(name)/3
	for _, word := range words {
		if n := distance(strings.ToLower(name), word); n <= least && (meant == "" || n < least) {
			meant, least = word, n
		}
	}
	return meant
}

// distance returns the number of letters to insert, remove or replace between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
