package wire

import "encoding/json"

// ProblemPage is the answer of GET /problems/{code} as JSON: the row of the table for a code, and an example.
type ProblemPage struct {
	Code        Code            `json:"code"`
	Status      int             `json:"status"`
	Title       string          `json:"title"`
	Retryable   bool            `json:"retryable"`
	Description string          `json:"about"`
	Hint        string          `json:"hint"`
	Example     json.RawMessage `json:"example"`
}
