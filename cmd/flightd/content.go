package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// fullFlight is a flight with its input, in the fields of an open answer. The receipt is part of the flight.
type fullFlight struct {
	*client.Flight
	Input       json.RawMessage `json:"input,omitempty"`
	InputBase64 []byte          `json:"input_base64,omitempty"`
	InputType   string          `json:"input_content_type,omitempty"`

	input *client.InputBody // nil: no input to show
}

// readFullFlight reads the input of a flight. If that fails, it prints a message and returns the flight alone.
func readFullFlight(ctx context.Context, a *cli.App, c *client.Client, f *client.Flight) fullFlight {
	w := fullFlight{Flight: f}
	id, err := flight.ParseID(f.ID)
	if err != nil || a.Format == "id" || f.State == flight.StateAbsent.String() || f.State == flight.StateExpired.String() || f.Redacted != nil {
		return w
	}
	w.input, err = c.Input(ctx, id)
	if err != nil {
		if !errors.As(err, new(*effect.Missing)) && client.CodeOf(err) != wire.Expired {
			a.Say("read the input: %v", err)
		}
		return w
	}
	w.InputType = w.input.ContentType
	if json.Valid(w.input.Data) {
		w.Input = w.input.Data
	} else {
		w.InputBase64 = w.input.Data
	}
	return w
}

// write prints the input and the receipt's body as text.
func (f *fullFlight) write(b *strings.Builder, server string) {
	path := server + "/v1/flights/" + f.ID
	if in := f.input; in != nil {
		writeContent(b, "input", path+"/input", in.ContentType, in.Digest, in.Data, len(in.Data))
	}
	if r := f.Receipt; r != nil && r.Body != nil {
		writeContent(b, "receipt", path+"/receipt", r.ContentType, r.Digest, r.Body, r.Size)
	} else if r != nil && r.BodyBase64 != nil {
		writeContent(b, "receipt", path+"/receipt", r.ContentType, r.Digest, r.BodyBase64, r.Size)
	}
}

// maxContentShown bounds the bytes of an input or a receipt that are printed.
const maxContentShown = 4 << 10

// writeContent prints text with every line indented, so that no line looks like one of this program. For bytes that are
// not text, and for the rest of a long text, it prints the command that fetches them.
func writeContent(b *strings.Builder, name, url, contentType, digest string, data []byte, size int) {
	shown, isText := textOf(data, size > len(data))
	fmt.Fprintf(b, "%s: %s of %s, %s\n", name, cli.Pluralize(size, "byte", "bytes"), cli.OneLine(cmp.Or(contentType, "unknown type")), digest)
	if isText {
		for line := range strings.Lines(shown) {
			fmt.Fprintln(b, "  "+cli.Printable(strings.TrimRight(line, "\r\n")))
		}
	}
	var more []string
	switch {
	case !isText:
		more = append(more, "it is not text")
	case len(shown) < len(data):
		more = append(more, fmt.Sprintf("the first %d bytes are shown", len(shown)))
	}
	if size > len(data) {
		more = append(more, fmt.Sprintf("only the first %d bytes are stored", len(data)))
	}
	if len(shown) < len(data) || !isText {
		more = append(more, "to fetch it: curl -s -o FILE "+url)
	}
	if len(more) > 0 {
		fmt.Fprintf(b, "  (%s)\n", strings.Join(more, "; "))
	}
}

// textOf returns the first maxContentShown bytes as text. cut reports that the data may end inside a character.
func textOf(data []byte, cut bool) (shown string, isText bool) {
	text := data
	if len(text) > maxContentShown {
		text, cut = text[:maxContentShown], true
	}
	for n := 1; cut && n < utf8.UTFMax && n <= len(text); n++ { // drop a character that was cut in two
		if last := text[len(text)-n]; utf8.RuneStart(last) {
			if !utf8.FullRune(text[len(text)-n:]) {
				text = text[:len(text)-n]
			}
			break
		}
	}
	return string(text), utf8.Valid(text) && !bytes.ContainsFunc(text, func(r rune) bool { return r == 0 })
}
