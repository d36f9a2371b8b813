package exec

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

// TestReceipt_StreamsComeBackByteForByte for arbitrary writes.
func TestReceipt_StreamsComeBackByteForByte(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune{'a', '<', '\n', 0, 'é', '\u2028', '\ufffd', '😀'}), 0, 40, -1)
	piece := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 60), rapid.Map(text, func(s string) []byte { return []byte(s) }))
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 400).Draw(t, "limit")
		code := rapid.IntRange(0, 255).Draw(t, "code")
		c := newCapture(limit, io.Discard, io.Discard)
		var out, errOut, both []byte
		for range rapid.IntRange(0, 8).Draw(t, "writes") {
			p := piece.Draw(t, "piece")
			both = append(both, p...)
			if rapid.Bool().Draw(t, "stderr") {
				errOut = append(errOut, p...)
				c.err.Write(p)
			} else {
				out = append(out, p...)
				c.out.Write(p)
			}
		}
		var r receipt
		if err := json.Unmarshal(encodeReceipt(code, c), &r); err != nil {
			t.Fatal(err)
		}
		gotOut, gotErr := r.streams()
		if r.ExitCode != code || !bytes.HasPrefix(out, gotOut) || !bytes.HasPrefix(errOut, gotErr) {
			t.Fatalf("got %d, %q, %q", r.ExitCode, gotOut, gotErr)
		}
		if kept := len(gotOut) + len(gotErr); kept != min(limit, len(both)) {
			t.Fatalf("kept %d of %d, limit %d", kept, len(both), limit)
		}
		if r.Truncated != (len(both) > limit) {
			t.Fatalf("truncated: %v with %d of %d", r.Truncated, limit, len(both))
		}
		if r.Truncated && (r.StdoutBytes != int64(len(out)) || r.StderrBytes != int64(len(errOut))) {
			t.Fatalf("lengths %d, %d of %d, %d", r.StdoutBytes, r.StderrBytes, len(out), len(errOut))
		}
	})
}

// TestReceipt_AlwaysFits: the receipt is within the ledger's limit, even if the output encodes badly.
func TestReceipt_AlwaysFits(t *testing.T) {
	for name, output := range map[string]string{
		"bytes": strings.Repeat("\xff", 1<<20), "controls": strings.Repeat("\x01", 1<<20), "quotes": strings.Repeat(`"<`, 1<<20), "text": strings.Repeat("x", 1<<20),
	} {
		c := newCapture(flight.MaxReceiptBody, io.Discard, io.Discard)
		io.WriteString(&c.out, output[:60<<10])
		io.WriteString(&c.err, output[:60<<10])
		body := encodeReceipt(0, c)
		var r receipt
		err := json.Unmarshal(body, &r)
		require.NoError(t, err, "%s: %d bytes, %v", name, len(body), err)
		require.LessOrEqual(t, len(body), flight.MaxReceiptBody, "%s: %d bytes, %v", name, len(body), err)
		require.True(t, r.Truncated, "%s: %d bytes, %v", name, len(body), err)
		out, errOut := r.streams()
		require.False(t, len(out)+len(errOut) < 40<<10 && name != "controls" && name != "quotes", "%s: only %d bytes were kept", name, len(out)+len(errOut))
		t.Logf("%s: %d and %d bytes kept in a receipt of %d", name, len(out), len(errOut), len(body))
	}
}

// brokenWriter is a closed pipe.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestCapture_NeverFails(t *testing.T) {
	c := newCapture(10, brokenWriter{}, brokenWriter{})
	n, err := c.out.Write([]byte("abc"))
	require.Equal(t, 3, n, "%d, %v, %q", n, err, c.out.kept.String())
	require.NoError(t, err, "%d, %v, %q", n, err, c.out.kept.String())
	require.Equal(t, "abc", c.out.kept.String(), "%d, %v, %q", n, err, c.out.kept.String())
}
