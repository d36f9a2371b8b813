package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flightd/flightd/flight"
)

// MaxResolvedInput is the maximum length of the input of a step in bytes.
const MaxResolvedInput = 1 << 20

// reference is the name of the only field of an object that a template replaces by the value at a JSON pointer.
const reference = "$from"

// InputError says that the input of a step cannot be made of what the saga has. Its step must not be performed.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Resolve returns the input of a step, or of its undo: its template, in which each {"$from": POINTER} is replaced by the value at the
// JSON pointer (RFC 6901) of
//
//	{"input": the saga's input, "steps": {NAME: {"outcome": ..., "external_id": ..., "body": ...}}}
//
// with the steps that the step comes after, and for an undo with the step itself. Without a template the input is that whole object.
// The receipts of steps never change while the saga lives, so a repeat returns the same bytes: names are sorted, and numbers are
// as they were written. The result passes the checks of the input of a job (flight.CanonicalJSON). external_id and body of a step without a receipt are null; the undo of a step that was reported
// as late, before the undo began, has the external_id of that report. A step whose condition has no value has no input.
func Resolve(d *Definition, v *View, step int, undo bool) ([]byte, error) {
	s, template := &d.Steps[step], d.Steps[step].Input
	visible := d.comesAfter()[step]
	if undo {
		visible |= 1 << step
		template = nil
		if s.Undo != nil {
			template = s.Undo.Input
		}
	}
	values, err := valuesOf(d, v, visible)
	if err != nil {
		return nil, err
	}
	if !undo && s.If != nil && s.If.Value != "" {
		if _, err := values.hold(s.If); err != nil {
			return nil, fmt.Errorf("its condition: %w", err)
		}
	}
	var input any = values.tree
	if template != nil {
		if input, err = decode(template); err == nil {
			input, err = values.fill(input)
		}
	}
	if err != nil {
		return nil, err
	}
	text := encode(input)
	if len(text) > MaxResolvedInput {
		return nil, fmt.Errorf("the input of step %s has %d bytes; at most %d are allowed", s.Name, len(text), MaxResolvedInput)
	}
	if _, err := flight.CanonicalJSON(text); err != nil { // unlike a receipt, an input must be JSON that every client reads the same way
		return nil, fmt.Errorf("the input of step %s is not one that every client reads the same way: %w; refer to the fields that it needs, or let the step report the value as a string", s.Name, err)
	}
	return text, nil
}

// CheckInput returns an error if a condition, or the input of a step without a condition or of its undo, refers to a value that the input of a saga
// does not have. Such a saga must not start.
func (d *Definition) CheckInput(input []byte) error {
	v := &View{Input: input, Steps: make([]*flight.Flight, len(d.Steps)), Undos: make([]*flight.Flight, len(d.Steps))}
	values, err := valuesOf(d, v, 0)
	if err != nil {
		return err
	}
	for i := range d.Steps {
		s := &d.Steps[i]
		var pointers []string
		switch {
		case s.If == nil:
			pointers = references(s.Input)
			if s.Undo != nil {
				pointers = append(pointers, references(s.Undo.Input)...)
			}
		case s.If.Value != "":
			pointers = []string{s.If.Value}
		}
		for _, p := range pointers {
			if _, err := values.at(p); err != nil && strings.HasPrefix(p+"/", "/input/") {
				return fmt.Errorf("step %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// values are what the templates and conditions of a step may refer to.
type values struct {
	tree     map[string]any
	noValue  map[string]bool // steps without a receipt
	stripped map[string]int  // steps of whose body only so many bytes are stored
	filled   int             // bytes of the values that references were replaced by
}

func valuesOf(d *Definition, v *View, visible set) (*values, error) {
	input := any(nil)
	if len(v.Input) > 0 {
		var err error
		if input, err = decode(v.Input); err != nil {
			return nil, fmt.Errorf("the input of the saga is not JSON: %w", err)
		}
	}
	steps := make(map[string]any)
	r := &values{tree: map[string]any{"input": input, "steps": steps}, noValue: make(map[string]bool), stripped: make(map[string]int)}
	for i := range d.Steps {
		if !visible.has(i) {
			continue
		}
		name, f, outcome := d.Steps[i].Name, v.Steps[i], "unknown"
		switch {
		case !created(f) && d.Steps[i].Timer > 0:
			outcome = outcomes[statusDone]
		case !created(f):
			outcome = outcomes[statusSkipped]
		case f.State == flight.StateSucceeded:
			outcome = outcomes[statusDone]
		case f.State.Terminal() && v.Saga != nil && v.Saga.Phase == flight.PhaseCommitted:
			outcome = outcomes[statusPassed]
		}
		step := map[string]any{"outcome": outcome}
		steps[name] = step
		if !created(f) || f.State != flight.StateSucceeded || f.Receipt == nil {
			step["external_id"], step["body"] = nil, nil
			r.noValue[name] = true
			if !created(f) {
				continue
			}
			if r := f.Receipt; r != nil && r.Outcome == flight.OutcomeSucceeded { // of UndoLate: it has no body
				step["outcome"], step["external_id"] = outcomes[statusDone], r.ExternalID
			} else if e := seenSuccess(f, v.Undos[i]); e != nil { // else its undo could not find what it has to undo
				step["outcome"], step["external_id"] = outcomes[statusDone], e.ExternalID
			}
			continue
		}
		step["external_id"] = f.Receipt.ExternalID
		switch body := &f.Receipt.Body; {
		case body.Truncated():
			step["truncated"] = true
			r.stripped[name] = body.StoredSize
		case body.Size == 0:
			step["body"] = nil
		default:
			step["body"] = undecoded(v.Bodies(i))
		}
	}
	return r, nil
}

// undecoded is the body of a receipt that no reference has looked into yet.
type undecoded []byte

// MarshalJSON implements json.Marshaler.
func (u undecoded) MarshalJSON() ([]byte, error) { return encode(bodyOf(u)), nil }

// bodyOf returns the body of a receipt as a value: JSON as it is, a text as a string, and other bytes in base64.
func bodyOf(data []byte) any {
	if value, err := decode(data); err == nil {
		return value
	}
	if utf8.Valid(data) {
		return string(data)
	}
	return data
}

// fill returns a template with its references replaced.
func (v *values) fill(template any) (any, error) {
	switch t := template.(type) {
	case map[string]any:
		if p, ok := t[reference].(string); ok && len(t) == 1 {
			value, err := v.at(p)
			if v.filled += len(encode(value)); err == nil && v.filled > MaxResolvedInput { // before it is written many times
				err = fmt.Errorf("the values of all references have more than %d bytes", MaxResolvedInput)
			}
			return value, err
		}
		for _, name := range sortedNames(t) {
			value, err := v.fill(t[name])
			if err != nil {
				return nil, err
			}
			t[name] = value
		}
	case []any:
		for i := range t {
			value, err := v.fill(t[i])
			if err != nil {
				return nil, err
			}
			t[i] = value
		}
	}
	return template, nil
}

// at returns the value at a JSON pointer.
func (v *values) at(pointer string) (any, error) {
	tokens, err := splitPointer(pointer)
	if err != nil {
		return nil, err
	}
	value := any(v.tree)
	for i, token := range tokens {
		name := ""
		if i >= 2 && tokens[0] == "steps" {
			name = tokens[1]
		}
		if v.noValue[name] && tokens[2] == "body" {
			return nil, nil
		}
		if size, ok := v.stripped[name]; ok && tokens[2] == "body" {
			return nil, fmt.Errorf("%s: only the first %d bytes of the body are stored; refer to the external_id, or let the step report a shorter body", pointer, size)
		}
		switch container := value.(type) {
		case map[string]any:
			inner, ok := container[token]
			if !ok {
				return nil, fmt.Errorf("%s: there is no %q", pointer, token)
			}
			if body, ok := inner.(undecoded); ok {
				inner = bodyOf(body)
				container[token] = inner
			}
			value = inner
		case []any:
			n, err := strconv.Atoi(token)
			if err != nil || n < 0 || strconv.Itoa(n) != token {
				return nil, fmt.Errorf("%s: %q is no index of an array", pointer, token)
			}
			if n >= len(container) {
				return nil, fmt.Errorf("%s: the array has only %d elements", pointer, len(container))
			}
			value = container[n]
		case nil:
			return nil, fmt.Errorf("%s: /%s is null, or was not given", pointer, strings.Join(tokens[:i], "/"))
		default:
			return nil, fmt.Errorf("%s: the value before %q is no object and no array", pointer, token)
		}
	}
	return value, nil
}

// splitPointer returns the unescaped tokens of a JSON pointer.
func splitPointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' {
		return nil, fmt.Errorf("%q is no JSON pointer: it begins with /", pointer)
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		for at := strings.IndexByte(t, '~'); at >= 0; {
			if at+1 >= len(t) || t[at+1] != '0' && t[at+1] != '1' {
				return nil, fmt.Errorf("%q is no JSON pointer: write ~0 for ~ and ~1 for /", pointer)
			}
			next := strings.IndexByte(t[at+1:], '~')
			if next < 0 {
				break
			}
			at += 1 + next
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// references returns the pointers of a template, each one once.
func references(template json.RawMessage) (pointers []string) {
	value, err := decode(template)
	if err != nil {
		return nil
	}
	var collect func(any)
	collect = func(value any) {
		switch t := value.(type) {
		case map[string]any:
			if p, ok := t[reference].(string); ok && len(t) == 1 {
				pointers = append(pointers, p)
				return
			}
			for _, name := range sortedNames(t) {
				collect(t[name])
			}
		case []any:
			for _, inner := range t {
				collect(inner)
			}
		}
	}
	collect(value)
	slices.Sort(pointers)
	return slices.Compact(pointers)
}

// holds evaluates a condition of a step whose needed steps are over.
func (s *survey) holds(step int) (bool, error) {
	c := s.d.Steps[step].If
	switch {
	case c.Succeeded != "":
		i := s.d.Index(c.Succeeded)
		return i >= 0 && s.status[i] == statusDone, nil
	case c.Skipped != "":
		i := s.d.Index(c.Skipped)
		return i >= 0 && s.status[i] == statusSkipped, nil
	}
	values, err := valuesOf(s.d, s.v, s.after[step])
	if err != nil {
		return false, err
	}
	return values.hold(c)
}

// hold evaluates a condition about a value.
func (v *values) hold(c *Condition) (bool, error) {
	value, err := v.at(c.Value)
	if err != nil {
		return false, err
	}
	return c.compare(value)
}

// compare compares a value with the constant of the condition.
func (c *Condition) compare(value any) (bool, error) {
	switch {
	case c.Equals != nil:
		return sameValue(value, c.Equals), nil
	case c.NotEquals != nil:
		return !sameValue(value, c.NotEquals), nil
	}
	number, ok := value.(json.Number)
	if !ok {
		return false, fmt.Errorf("%s is not a number", c.Value)
	}
	if c.Above != nil {
		return flight.CompareNumbers(string(number), string(c.Above)) > 0, nil
	}
	return flight.CompareNumbers(string(number), string(c.Below)) < 0, nil
}

// sameValue compares a value with a constant, which is a string, a number, a boolean or null.
func sameValue(value any, constant json.RawMessage) bool {
	want, err := decode(constant)
	if err != nil {
		return false
	}
	a, isNumber := value.(json.Number)
	b, wantsNumber := want.(json.Number)
	if isNumber && wantsNumber {
		return flight.CompareNumbers(string(a), string(b)) == 0
	}
	switch value.(type) {
	case nil, bool, string:
		return value == want
	}
	return false
}

// decode reads one JSON value and keeps its numbers as they are written.
func decode(data []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err = d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing data after the JSON value")
	}
	return value, nil
}

// encode writes a value that decode has read, with sorted names.
func encode(value any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(err) // a decoded value has a JSON text
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func sortedNames(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
