package saga

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// UnknownFields is the error that ParseYAML returns for a definition with unknown fields.
type UnknownFields struct {
	Found []Finding // every unknown field, in the order of the document
	first *wire.Invalid
}

func (e *UnknownFields) Error() string { return e.first.Error() }
func (e *UnknownFields) Unwrap() error { return e.first }

// unknownFields returns the fields of a JSON document that a Definition does not have. Their hints name the fields that are probably meant.
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
			*found = append(*found, Finding{Pointer: pointer, Detail: fmt.Sprintf("%s %q", strictjson.UnknownField, name),
				Hint: cmp.Or(suggest(name, slices.Sorted(maps.Keys(known))), "remove the field or fix its spelling")})
		}
	}
}

// suggest returns a hint with the word that differs least from a name, or "" if no word is similar.
func suggest(name string, words []string) (hint string) {
	least := min(1+len(name)/3, len(name)-1) // not every letter differs
	for _, word := range words {
		if n := distance(strings.ToLower(name), strings.ToLower(word)); n <= least && (hint == "" || n < least) {
			hint, least = "do you mean "+word+"?", n
		}
	}
	return hint
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
