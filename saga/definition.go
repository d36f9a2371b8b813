package saga

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// MaxSteps is the maximum number of steps of a saga.
const MaxSteps = 32

// Definition is one version of a saga. A saga that runs stays with the definition that it was started with, so a definition is
// never changed: a change is a new version.
type Definition struct {
	Saga     string   `json:"saga"`
	Version  uint32   `json:"version,omitzero"`
	Deadline Duration `json:"deadline,omitzero"` // from the start to the cancel, unless the pivot has succeeded; 0: none
	Steps    []Step   `json:"steps"`             // the order is for people; Needs decides
}

// Step is one effect of a saga, or a gate: an approval, or a timer.
type Step struct {
	Name      string          `json:"name"`
	Action    string          `json:"action,omitzero"` // whose workers perform the step; "": SAGA.NAME
	Needs     []string        `json:"needs,omitzero"`  // the steps that must end before this one starts; none: it starts at once
	If        *Condition      `json:"if,omitzero"`     // false: the step is skipped
	Input     json.RawMessage `json:"input,omitzero"`  // a template; none: the saga's input and all receipts
	Pivot     bool            `json:"pivot,omitzero"`  // from the success of this step on the saga is only completed, never undone
	NoUndo    bool            `json:"no_undo,omitzero"`
	Undo      *Undo           `json:"undo,omitzero"`
	Approval  *Approval       `json:"approval,omitzero"` // the step is the answer of a person
	Timer     Duration        `json:"timer,omitzero"`    // the step is a pause; it has no flight
	RunPolicy                 // of the step
}

// Undo is the effect that undoes a step.
type Undo struct {
	Action       string          `json:"action,omitzero"` // "": SAGA.NAME.undo
	Input        json.RawMessage `json:"input,omitzero"`
	SafeIfAbsent bool            `json:"safe_if_absent,omitzero"` // it does no harm if the step did not happen
	RunPolicy
}

// Approval is a step that a person answers.
type Approval struct {
	Expires Duration `json:"expires,omitzero"` // without an answer the approval is refused; 0: it waits forever
}

// RunPolicy is the policy of a step or of an undo.
type RunPolicy struct {
	Recovery       string   `json:"recovery,omitzero"` // hold, resend or verify; "": hold
	ProviderWindow Duration `json:"provider_window,omitzero"`
	Timeout        Duration `json:"timeout,omitzero"`
	SettleDelay    Duration `json:"settle_delay,omitzero"`
	Retry          *Retry   `json:"retry,omitzero"` // nil: wire.DefaultRetry
}

// Retry says how often a step or undo runs again after its effect surely did not happen.
type Retry struct {
	Attempts int      `json:"attempts,omitzero"` // the first one included; 0: as many as fit into Within
	First    Duration `json:"first,omitzero"`
	Max      Duration `json:"max,omitzero"`
	Within   Duration `json:"within,omitzero"` // from the first attempt
}

// Condition is one comparison: of Value with one constant, or of the end of another step.
type Condition struct {
	Value     string          `json:"value,omitzero"` // JSON pointer into what the input of the step would be without a template
	Equals    json.RawMessage `json:"equals,omitzero"`
	NotEquals json.RawMessage `json:"not_equals,omitzero"`
	Above     json.RawMessage `json:"above,omitzero"` // numbers are compared as decimals, exactly
	Below     json.RawMessage `json:"below,omitzero"`
	Succeeded string          `json:"succeeded,omitzero"` // the name of a step
	Skipped   string          `json:"skipped,omitzero"`
}

// Duration is written like 1m30s.
type Duration time.Duration

// MarshalText writes the shortest form: 24h, not 24h0m0s.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(d.String()), nil
}

// UnmarshalText reads what wire.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := wire.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

func (d Duration) String() string { return wire.FormatDuration(time.Duration(d)) }

// ErrNoDefinition says that the ledger does not have the definition with which a saga was started: it was deleted.
var ErrNoDefinition = errors.New("the ledger does not have the definition of the saga")

// Parse reads a definition in JSON strictly: unknown and duplicate fields, other types and trailing data are rejected. It
// returns a *wire.Invalid with the JSON pointer of the first fault. Lint checks what the definition says.
func Parse(data []byte) (*Definition, error) {
	d := &Definition{}
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return nil, &wire.Invalid{Code: wire.InputInvalid, FieldError: wire.FieldError{Detail: "a definition is a JSON object"},
			Hint: "begin with {\"saga\": NAME, \"steps\": [...]}"}
	}
	if err := strictjson.DecodeRequest(data, d); err != nil {
		var at *strictjson.Error
		if !errors.As(err, &at) {
			return nil, wire.BadField("", "%v", err)
		}
		bad := wire.BadField(at.Pointer, "%s", at.Detail)
		if at.Detail == strictjson.UnknownField {
			bad.Hint = "remove the field or fix its spelling; unknown fields are rejected, never ignored"
		}
		return nil, bad
	}
	d.Version = cmp.Or(d.Version, 1)
	return d, nil
}

// JSON returns the definition in the form of its document. Equal definitions have equal documents.
func (d *Definition) JSON() []byte {
	text, err := flight.CanonicalJSON(strictjson.Append(nil, d))
	if err != nil {
		return strictjson.Append(nil, d) // Lint has a finding about the value that has no canonical form
	}
	return text
}

// ID is the id that a flight's policy has: trip@3.
func (d *Definition) ID() string { return fmt.Sprintf("%s@%d", d.Saga, d.Version) }

// DocumentName is the name of the definition's document: trip.3.
func (d *Definition) DocumentName() string { return fmt.Sprintf("%s.%d", d.Saga, d.Version) }

// Index returns the position of a step, or -1.
func (d *Definition) Index(name string) int {
	return slices.IndexFunc(d.Steps, func(s Step) bool { return s.Name == name })
}

// pivot returns the position of the pivot, or -1.
func (d *Definition) pivot() int {
	return slices.IndexFunc(d.Steps, func(s Step) bool { return s.Pivot })
}

// set is a set of positions of steps.
type set uint32

func (s set) has(i int) bool { return s&(1<<i) != 0 }

// comesAfter returns, for each step, the steps that it comes after: those that it needs, and those that they need. A step of a cycle
// comes after itself. Names of no step are ignored.
func (d *Definition) comesAfter() []set {
	all := make([]set, len(d.Steps))
	for range d.Steps {
		for i := range d.Steps {
			for _, name := range d.Steps[i].Needs {
				if j := d.Index(name); j >= 0 {
					all[i] |= 1<<j | all[j]
				}
			}
		}
	}
	return all
}

// inOrder returns the positions of all steps, each one behind those that it comes after.
func inOrder(after []set) []int {
	order := make([]int, len(after))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(bits.OnesCount32(uint32(after[i])), bits.OnesCount32(uint32(after[j])))
	})
	return order
}

// ActionOf returns the action whose workers perform a step, or its undo.
func (d *Definition) ActionOf(step int, undo bool) string {
	s := &d.Steps[step]
	switch {
	case undo && s.Undo != nil && s.Undo.Action != "":
		return s.Undo.Action
	case undo:
		return d.Saga + "." + s.Name + ".undo"
	case s.Action != "":
		return s.Action
	}
	return d.Saga + "." + s.Name
}

// KeyOf returns the key of a step, or of its undo, in the saga with the given key.
func (d *Definition) KeyOf(saga flight.Key, step int, undo bool) (flight.Key, error) {
	name := d.Steps[step].Name
	if undo {
		name += ".undo"
	}
	return saga.Step(name)
}

// PolicyOf returns the policy of a step, or of its undo. The definition has no findings of Lint.
func (d *Definition) PolicyOf(step int, undo bool) flight.Policy {
	s := &d.Steps[step]
	p := s.RunPolicy
	if undo && s.Undo != nil {
		p = s.Undo.RunPolicy
	}
	recovery, _ := flight.ParseRecovery(cmp.Or(p.Recovery, "hold"))
	policy := flight.Policy{Recovery: recovery, ProviderWindow: time.Duration(p.ProviderWindow), AttemptTimeout: time.Duration(p.Timeout),
		SettleDelay: time.Duration(p.SettleDelay), Retry: wire.DefaultRetry, Approval: s.Approval != nil && !undo,
		SafeIfAbsent: !undo && s.Undo != nil && s.Undo.SafeIfAbsent}
	if policy.Approval {
		policy.ApprovalWithin = time.Duration(s.Approval.Expires)
	}
	if r := p.Retry; r != nil {
		policy.Retry = wire.WithPauses(flight.RetryPolicy{Attempts: cmp.Or(r.Attempts, maxAttempts), MinBackoff: time.Duration(r.First), MaxBackoff: time.Duration(r.Max),
			Within: time.Duration(r.Within)})
	}
	return policy
}

// CheckRetention returns an error if the retention is shorter than the time in which a step or an undo may still be retried.
func (d *Definition) CheckRetention(retention time.Duration) error {
	for i := range d.Steps {
		for _, undo := range [...]bool{false, d.Steps[i].Undo != nil} {
			if p := d.PolicyOf(i, undo); p.Retry.Within > retention || p.ProviderWindow > retention {
				return fmt.Errorf("%v is shorter than retry.within or provider_window of step %s, %v", Duration(retention), d.Steps[i].Name, Duration(max(p.Retry.Within, p.ProviderWindow)))
			}
		}
	}
	return nil
}

// maxAttempts is the number of attempts of a step that only time bounds.
const maxAttempts = 1_000_000
