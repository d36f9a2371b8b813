package wire

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/flightd/flightd/flight"
)

// The states of a saga, as people see it.
const (
	SagaRunning   = "running"
	SagaCommitted = "committed" // its pivot has succeeded: from here on only forward
	SagaUndoing   = "undoing"
	SagaInDoubt   = "in_doubt" // a step or an undo waits for a person
	SagaDone      = "done"
	SagaUndone    = "undone"
	SagaCancelled = "cancelled" // before its first step
)

// SagaStates returns the states of a saga.
func SagaStates() []string {
	return []string{SagaRunning, SagaCommitted, SagaUndoing, SagaInDoubt, SagaDone, SagaUndone, SagaCancelled}
}

// StartSagaRequest is the body of POST /v1/sagas:start. The namespace travels in a header.
type StartSagaRequest struct {
	Saga      string          `json:"saga" limit:"word"` // NAME, the newest version, or NAME@VERSION
	ID        string          `json:"id" limit:"word"`
	Input     json.RawMessage `json:"input,omitzero" null:"absent"`
	Retention string          `json:"retention,omitzero" limit:"word"` // "30d", "12h"; of the saga and its steps
}

// StartSagaAnswer is the answer to a start. A saga that was started before is a duplicate, also with another version.
type StartSagaAnswer struct {
	Status string `json:"status"` // queued or duplicate
	Saga   *Saga  `json:"saga"`
}

// Saga is a saga and its steps.
type Saga struct {
	ID          string       `json:"id"` // of its flight
	Key         string       `json:"key"`
	Definition  string       `json:"definition"` // NAME@VERSION
	State       string       `json:"state"`
	Cause       string       `json:"cause,omitzero"`        // why it is undone, or is to be
	Version     string       `json:"version"`               // of its flight
	RequestedBy string       `json:"requested_by,omitzero"` // who has started it
	Cancel      *Attribution `json:"cancel,omitzero"`
	CreatedAt   Time         `json:"created_at,omitzero"`
	FinishedAt  Time         `json:"finished_at,omitzero"`
	Steps       []SagaStep   `json:"steps,omitempty"`
	Receipt     *Receipt     `json:"receipt,omitzero"`
}

// SagaStep is a step of a saga.
type SagaStep struct {
	Step     string   `json:"step"`
	Action   string   `json:"action,omitzero"`
	Pivot    bool     `json:"pivot,omitzero"`
	Needs    []string `json:"needs,omitempty"`
	Flight   *Flight  `json:"flight,omitzero"`    // nil: it was not started
	Undo     *Flight  `json:"undo,omitzero"`      // nil: it was not undone
	Late     bool     `json:"late,omitzero"`      // it has happened after the driver's last look
	LateUndo *Flight  `json:"late_undo,omitzero"` // of that late success, on a person's request
}

// UndoLateRequest is the body of POST /v1/flights/{id}/undo-late.
type UndoLateRequest struct {
	Step   string `json:"step" limit:"word"`
	Reason string `json:"reason" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"` // as the header Flightd-Actor
}

// Parse returns the key and the submission in the terms of package flight, and the version that is asked for; 0: the newest.
func (r *StartSagaRequest) Parse(namespace string) (key flight.Key, s flight.Submission, version int, bad *Invalid) {
	name, number, named := strings.Cut(r.Saga, "@")
	if named {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || strconv.Itoa(n) != number {
			return key, s, 0, BadField("/saga", "%.40q is no version; write NAME or NAME@VERSION, such as trip@3", number)
		}
		version = n
	}
	if key, bad = Key(namespace, name, r.ID); bad != nil {
		if bad.Pointer == "/action" {
			bad.Pointer = "/saga"
		}
		return key, s, 0, bad
	}
	open := OpenRequest{Input: r.Input, Policy: Policy{Retention: r.Retention}}
	s, bad = open.submission()
	return key, s, version, bad
}

// SagaPage is the answer to GET /v1/sagas: sagas without steps and receipts.
type SagaPage struct {
	Sagas []Saga `json:"sagas"`
	Next  string `json:"next,omitzero"` // the cursor of the next page
}

// SagaVersions is the answer to GET /v1/sagas/{name}/versions.
type SagaVersions struct {
	Versions []SagaVersion `json:"versions"`
}

// SagaVersion is one definition of a saga.
type SagaVersion struct {
	Definition string `json:"definition"` // NAME@VERSION
	Steps      int    `json:"steps"`
	CreatedAt  Time   `json:"created_at,omitzero"`
	By         string `json:"by,omitzero"`
	Running    int    `json:"running"` // sagas of it that are not over
}

// Over reports whether nothing more happens in the saga.
func (s *Saga) Over() bool {
	return s.State == SagaDone || s.State == SagaUndone || s.State == SagaCancelled
}
