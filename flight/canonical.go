package flight

import (
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
)

// MaxJSONDepth is how deep the arrays and objects of an input may nest.
const MaxJSONDepth = 128

// maxDiffering bounds the list of DifferingFields.
const maxDiffering = 16

// CanonicalJSON gives the one spelling of a JSON document that RFC 8785 defines. Two documents with the same spelling
// mean the same.
//
// It refuses as *InvalidError whatever two readers could take for different things, and what RFC 8785 would silently
// change into something else: all that is outside RFC 7493 (names that stand twice, lone surrogates, noncharacters,
// invalid UTF-8), nesting deeper than MaxJSONDepth, anything behind the document, and numbers that a double does not
// hold: integers beyond 2^53 in either direction (from 1e21 on, where the one spelling has an exponent, those that a double
// holds), and any other number whose shortest double has another decimal value (1.00000000000000001, 1e400, 1e-400). A
// number that needs more belongs into a string. 1.0, 1e0 and 1 are one number, and so are -0 and 0: the sign of zero says
// nothing about a business intent.
func CanonicalJSON(input []byte) ([]byte, error) {
	if _, err := parseDocument(input); err != nil {
		return nil, err
	}
	return canonical(input)
}

// FingerprintJSON is the fingerprint of a JSON document without the fields that ignore names as JSON pointers
// (RFC 6901). A pointer to nothing leaves nothing out. The whole document must be one that CanonicalJSON accepts, the
// ignored fields included; a pointer must be well-formed and may not name the document itself. Errors are *InvalidError.
func FingerprintJSON(input []byte, ignore []string) (Fingerprint, error) {
	doc, err := parseDocument(input)
	if err != nil {
		return NoFingerprint, err
	}
	if len(ignore) > 0 {
		if doc, err = doc.without(ignore); err != nil {
			return NoFingerprint, err
		}
		input = doc.appendTo(nil)
	}
	text, err := canonical(input)
	if err != nil {
		return NoFingerprint, err
	}
	return FingerprintBytes(text), nil
}

// FingerprintBytes is the fingerprint of an input that is not JSON: every byte counts.
func FingerprintBytes(b []byte) Fingerprint { return sha256.Sum256(b) }

// DifferingFields names, as JSON pointers in the order of the canonical spelling, the fields in which two documents
// differ, ignored ones left out: the deepest ones that tell, at most 16. "" means that the documents as wholes differ.
// It is for messages: where either is no document that CanonicalJSON accepts, it names nothing.
func DifferingFields(a, b []byte, ignore []string) []string {
	x, errX := canonicalDocument(a, ignore)
	y, errY := canonicalDocument(b, ignore)
	if errX != nil || errY != nil {
		return nil
	}
	d := differences{}
	d.compare("", &x, &y)
	return d.found
}

func canonical(checked []byte) ([]byte, error) {
	text, err := jcs.Transform(checked)
	if err != nil {
		return nil, &InvalidError{Field: "input", Detail: err.Error()}
	}
	return text, nil
}

func canonicalDocument(input []byte, ignore []string) (node, error) {
	text, err := CanonicalJSON(input)
	if err != nil {
		return node{}, err
	}
	doc, err := parseDocument(text)
	if err != nil {
		return node{}, err
	}
	return doc.without(ignore)
}

// without gives the document without the values that the pointers name, all of them taken in the whole document.
func (n node) without(pointers []string) (node, error) {
	for _, p := range pointers {
		path, err := parsePointer(p)
		if err != nil {
			return node{}, err
		}
		n.mark(path)
	}
	n.prune()
	return n, nil
}

func parsePointer(p string) ([]string, error) {
	if !strings.HasPrefix(p, "/") {
		return nil, &InvalidError{Field: "ignore", Detail: "a JSON pointer into the input starts with '/'"}
	}
	path := strings.Split(p[1:], "/")
	for i, token := range path {
		for rest := token; ; {
			_, after, found := strings.Cut(rest, "~")
			if !found {
				break
			}
			if after == "" || after[0] != '0' && after[0] != '1' {
				return nil, &InvalidError{Field: "ignore", Detail: "in a JSON pointer '~' is written ~0, and '/' inside a name ~1"}
			}
			rest = after
		}
		path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	}
	return path, nil
}

// mark finds the value that path names and marks it to be left out.
func (n *node) mark(path []string) {
	for i := range n.children {
		c := &n.children[i]
		if n.kind == objectNode && c.name != path[0] || n.kind == arrayNode && strconv.Itoa(i) != path[0] {
			continue
		}
		if len(path) == 1 {
			c.ignored = true
			return
		}
		c.value.mark(path[1:])
	}
}

func (n *node) prune() {
	kept := n.children[:0]
	for _, c := range n.children {
		if !c.ignored {
			c.value.prune()
			kept = append(kept, c)
		}
	}
	n.children = kept
}

// appendTo writes the document as it was spelled, without what was pruned.
func (n *node) appendTo(b []byte) []byte {
	if n.kind == scalarNode {
		return append(b, n.text...)
	}
	brackets := "[]"
	if n.kind == objectNode {
		brackets = "{}"
	}
	b = append(b, brackets[0])
	for i := range n.children {
		c := &n.children[i]
		if i > 0 {
			b = append(b, ',')
		}
		if n.kind == objectNode {
			b = append(append(b, c.spelled...), ':')
		}
		b = c.value.appendTo(b)
	}
	return append(b, brackets[1])
}

type differences struct{ found []string }

func (d *differences) add(pointer string) {
	if len(d.found) < maxDiffering {
		d.found = append(d.found, pointer)
	}
}

func (d *differences) compare(at string, x, y *node) {
	switch {
	case len(d.found) >= maxDiffering:
	case x.kind != y.kind || x.kind == scalarNode && string(x.text) != string(y.text):
		d.add(at)
	case x.kind == arrayNode:
		d.compareArrays(at, x, y)
	case x.kind == objectNode:
		d.compareObjects(at, x, y)
	}
}

func (d *differences) compareArrays(at string, x, y *node) {
	for i := range max(len(x.children), len(y.children)) {
		here := at + "/" + strconv.Itoa(i)
		if i >= len(x.children) || i >= len(y.children) {
			d.add(here)
			return // one is longer: the first element that the other lacks says so
		}
		d.compare(here, &x.children[i].value, &y.children[i].value)
	}
}

func (d *differences) compareObjects(at string, x, y *node) {
	others := make(map[string]*node, len(y.children))
	for i := range y.children {
		others[y.children[i].name] = &y.children[i].value
	}
	for i := range x.children {
		c := &x.children[i]
		here := at + "/" + escapePointer(c.name)
		if other, ok := others[c.name]; ok {
			delete(others, c.name)
			d.compare(here, &c.value, other)
		} else {
			d.add(here)
		}
	}
	for i := range y.children {
		if _, alone := others[y.children[i].name]; alone {
			d.add(at + "/" + escapePointer(y.children[i].name))
		}
	}
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
