package wire

import "encoding/json"

// ProblemPage is the answer of GET /problems/{code}, where JSON is asked for: what the table says of a code, and an
// answer that has it.
type ProblemPage struct {
	Code      Code            `json:"code"`
	Status    int             `json:"status"`
	Title     string          `json:"title"`
	Retryable bool            `json:"retryable"`
	About     string          `json:"about"`
	Hint      string          `json:"hint"`
	Example   json.RawMessage `json:"example"`
}
