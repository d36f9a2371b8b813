package auth

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Verbs is a set of permissions.
type Verbs uint8

// The verbs of a token.
const (
	Submit  Verbs = 1 << iota // open, report, verify and abandon flights; sessions
	Work                      // report, verify and abandon flights; sessions
	Read                      // read flights and events
	Operate                   // decide as a person: resolve, approve, reject, cancel, retry, free, redact, import; read the audit log
	Admin                     // manage tokens and limits of namespaces; read the audit log
	Define                    // create documents of actions, as a worker does that brings a policy
)

// AllVerbs is the set of all verbs.
const AllVerbs = Submit | Work | Read | Operate | Admin | Define

var verbNames = [...]string{"submit", "work", "read", "operate", "admin", "define"}

// Names returns the names of the verbs, in a fixed order.
func (v Verbs) Names() []string {
	names := []string{}
	for i, name := range verbNames {
		if v&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the names of the verbs, separated by commas.
func (v Verbs) String() string { return strings.Join(v.Names(), ", ") }

// HasAny reports whether v contains at least one of the verbs.
func (v Verbs) HasAny(of Verbs) bool { return v&of != 0 }

// HasAll reports whether v contains each of the verbs.
func (v Verbs) HasAll(of Verbs) bool { return v&of == of }

// ParseVerbs returns the set of the named verbs. It returns an error for an unknown name.
func ParseVerbs(names []string) (v Verbs, err error) {
next:
	for _, name := range names {
		for i, known := range verbNames {
			if name == known {
				v |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("unknown verb %.50q; allowed: %s", name, strings.Join(verbNames[:], ", "))
	}
	return v, nil
}

// MarshalJSON implements json.Marshaler: the verbs are an array of names.
func (v Verbs) MarshalJSON() ([]byte, error) { return json.Marshal(v.Names()) }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Verbs) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return err
	}
	var err error
	*v, err = ParseVerbs(names)
	return err
}
