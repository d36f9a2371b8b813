package httpapi_test

import "encoding/json"

// Map is a JSON object that keeps the order of its members, so that the document has the order of the tables.
type Map[T any] []Member[T]

// Member is one name and its value.
type Member[T any] struct {
	Name  string
	Value T
}

// Get returns the value of a name.
func (m Map[T]) Get(name string) (value T, found bool) {
	for _, e := range m {
		if e.Name == name {
			return e.Value, true
		}
	}
	return value, false
}

func (m *Map[T]) put(name string, value T) { *m = append(*m, Member[T]{name, value}) }

// MarshalJSON implements json.Marshaler.
func (m Map[T]) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, e := range m {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(e.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(e.Value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}
