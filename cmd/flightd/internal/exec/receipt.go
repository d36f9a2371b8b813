package exec

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/flightd/flightd/flight"
)

// receiptType is the content type of a receipt written by exec.
const receiptType = "application/vnd.flightd.exec+json"

// receipt is the stored result of a command. A stream is text if it is valid UTF-8 and not much shorter in base64;
// empty streams are omitted.
type receipt struct {
	ExitCode     int     `json:"exit_code"`
	Stdout       *string `json:"stdout,omitempty"`
	StdoutBase64 []byte  `json:"stdout_base64,omitempty"`
	Stderr       *string `json:"stderr,omitempty"`
	StderrBase64 []byte  `json:"stderr_base64,omitempty"`
	// If the output exceeded the limit: the full length in bytes and the SHA-256 sum of each stream.
	Truncated    bool   `json:"truncated,omitempty"`
	StdoutBytes  int64  `json:"stdout_bytes,omitempty"`
	StdoutSHA256 string `json:"stdout_sha256,omitempty"`
	StderrBytes  int64  `json:"stderr_bytes,omitempty"`
	StderrSHA256 string `json:"stderr_sha256,omitempty"`
}

// encodeReceipt encodes the receipt of a command. It shortens the streams until the body fits into
// flight.MaxReceiptBody, so that the ledger stores it whole.
func encodeReceipt(code int, c *capture) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := c.out.kept.Bytes(), c.err.kept.Bytes()
	for {
		body := marshalReceipt(code, c, out, err)
		over := len(body) - flight.MaxReceiptBody
		if over <= 0 {
			return body
		}
		out, err = shorten(out, err, over)
	}
}

// shorten cuts the ends of both streams, in proportion, to save about over encoded bytes. The caller repeats it as
// needed.
func shorten(out, err []byte, over int) ([]byte, []byte) {
	total := len(out) + len(err)
	drop := min(total, max(over/6, 64)) // JSON encodes one byte in up to six
	fromOut := drop * len(out) / max(total, 1)
	return out[:len(out)-fromOut], err[:len(err)-min(len(err), drop-fromOut)]
}

func marshalReceipt(code int, c *capture, out, err []byte) []byte {
	r := receipt{ExitCode: code}
	r.Stdout, r.StdoutBase64 = encodeStream(out)
	r.Stderr, r.StderrBase64 = encodeStream(err)
	if int64(len(out)) < c.out.size || int64(len(err)) < c.err.size {
		r.Truncated = true
		r.StdoutBytes, r.StdoutSHA256 = c.out.size, hex.EncodeToString(c.out.sum.Sum(nil))
		r.StderrBytes, r.StderrSHA256 = c.err.size, hex.EncodeToString(c.err.sum.Sum(nil))
	}
	body, _ := json.Marshal(r) // cannot fail for these types
	return body
}

// encodeStream encodes a stream as text if that is exact and not longer than base64.
func encodeStream(b []byte) (*string, []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	if utf8.Valid(b) {
		text := string(b)
		if written, err := json.Marshal(text); err == nil && len(written) <= len(b)*4/3+8 {
			return &text, nil
		}
	}
	return nil, b
}

// streams decodes the streams that encodeStream encoded.
func (r *receipt) streams() (out, err []byte) {
	out, err = r.StdoutBase64, r.StderrBase64
	if r.Stdout != nil {
		out = []byte(*r.Stdout)
	}
	if r.Stderr != nil {
		err = []byte(*r.Stderr)
	}
	return out, err
}

// shortened describes the output that is not stored. It returns "" if the output is stored whole.
func (r *receipt) shortened() string {
	if !r.Truncated {
		return ""
	}
	out, err := r.streams()
	return fmt.Sprintf("output shortened: of %d and %d bytes, %d and %d were kept", r.StdoutBytes, r.StderrBytes, len(out), len(err))
}
