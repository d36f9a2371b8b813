package flight

import (
	"crypto/sha256"
	"strconv"
	"strings"
)

// maxDifferingFields is the greatest length of the list that DifferingFields returns.
const maxDifferingFields = 16

// FingerprintJSON returns the fingerprint of a JSON document without the fields that ignore names as JSON pointers
// (RFC 6901). A pointer to a missing field is ignored. The whole document, ignored fields included, must be one that
// CanonicalJSON accepts. A pointer must be well-formed and must not name the whole document. Errors are *InvalidError.
func FingerprintJSON(input []byte, ignore []string) (Fingerprint, error) {
	if len(ignore) == 0 {
		text, err := CanonicalJSON(input)
		if err != nil {
			return NoFingerprint, err
		}
		return FingerprintBytes(text), nil
	}
	doc, err := parseWithout(input, ignore)
	if err != nil {
		return NoFingerprint, err
	}
	return FingerprintBytes(doc.appendTo(nil)), nil
}

// FingerprintBytes returns the fingerprint of an input that is not JSON: every byte counts.
func FingerprintBytes(b []byte) Fingerprint { return sha256.Sum256(b) }

// DifferingFields returns, as JSON pointers in the order of the canonical form, the deepest fields in which two
// documents differ, without the ignored ones, and at most 16 of them. The pointer "" means that the whole documents
// differ. The result is for messages: it is empty if CanonicalJSON rejects either document.
func DifferingFields(a, b []byte, ignore []string) []string {
	x, errX := parseWithout(a, ignore)
	y, errY := parseWithout(b, ignore)
	if errX != nil || errY != nil {
		return nil
	}
	d := differences{}
	d.compare("", &x, &y)
	return d.found
}

// parseWithout returns the canonical document without the values that the pointers name. An index into an array counts
// the elements of the whole document.
func parseWithout(input []byte, pointers []string) (node, error) {
	doc, err := parseDocument(input)
	if err != nil {
		return node{}, err
	}
	for _, p := range pointers {
		path, err := parsePointer(p)
		if err != nil {
			return node{}, err
		}
		doc.markIgnored(path)
	}
	doc.removeIgnored()
	return doc, nil
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

// markIgnored marks the value that path names, if it exists, for prune.
func (n *node) markIgnored(path []string) {
	for i := range n.members {
		c := &n.members[i]
		if n.isObject() && c.name != path[0] || n.isArray() && strconv.Itoa(i) != path[0] {
			continue
		}
		if len(path) == 1 {
			c.ignored = true
			return
		}
		c.value.markIgnored(path[1:])
	}
}

// removeIgnored removes the marked values.
func (n *node) removeIgnored() {
	kept := n.members[:0]
	for _, c := range n.members {
		if !c.ignored {
			c.value.removeIgnored()
			kept = append(kept, c)
		}
	}
	n.members = kept
}

type differences struct{ found []string }

func (d *differences) add(pointer string) {
	if len(d.found) < maxDifferingFields {
		d.found = append(d.found, pointer)
	}
}

func (d *differences) compare(at string, x, y *node) {
	switch {
	case len(d.found) >= maxDifferingFields:
	case x.kind != y.kind || x.text != y.text:
		d.add(at)
	case x.isArray():
		d.compareArrays(at, x, y)
	case x.isObject():
		d.compareObjects(at, x, y)
	}
}

func (d *differences) compareArrays(at string, x, y *node) {
	for i := range max(len(x.members), len(y.members)) {
		path := at + "/" + strconv.Itoa(i)
		if i >= len(x.members) || i >= len(y.members) {
			d.add(path)
			return // the first element that the shorter array lacks is enough
		}
		d.compare(path, &x.members[i].value, &y.members[i].value)
	}
}

func (d *differences) compareObjects(at string, x, y *node) {
	others := make(map[string]*node, len(y.members))
	for i := range y.members {
		others[y.members[i].name] = &y.members[i].value
	}
	for i := range x.members {
		c := &x.members[i]
		path := at + "/" + escapePointer(c.name)
		if other, ok := others[c.name]; ok {
			delete(others, c.name)
			d.compare(path, &c.value, other)
		} else {
			d.add(path)
		}
	}
	for i := range y.members {
		if _, alone := others[y.members[i].name]; alone {
			d.add(at + "/" + escapePointer(y.members[i].name))
		}
	}
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
