package effect

import "context"

// HeaderTraceparent is the header of W3C Trace Context that says which trace a request belongs to.
const HeaderTraceparent = "Traceparent"

// The parts of a traceparent: version, trace id, parent id, flags, with a dash between them.
const (
	traceparentLen = 2 + 1 + 32 + 1 + 16 + 1 + 2
	traceIDFrom    = 3
	traceIDTo      = traceIDFrom + 32
	parentIDFrom   = traceIDTo + 1
	parentIDTo     = parentIDFrom + 16
	// longestTraceparent bounds what a later version may have behind that.
	longestTraceparent = 256
)

type traceKey struct{}

// WithTraceparent gives a context whose calls belong to that trace: the header goes out with every request for them,
// as it came, because nothing here records spans of its own. One that is not well-formed is ignored, as the standard
// wants it; then ctx itself is returned.
func WithTraceparent(ctx context.Context, header string) context.Context {
	if TraceID(header) == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, header)
}

// Traceparent is the header that WithTraceparent took; "" when there is none.
func Traceparent(ctx context.Context) string {
	header, _ := ctx.Value(traceKey{}).(string)
	return header
}

// TraceID is the trace id in a traceparent, 32 hexadecimal digits; "" for a header that is not well-formed.
func TraceID(header string) string {
	if len(header) < traceparentLen || len(header) > longestTraceparent {
		return ""
	}
	version, more := header[:2], header[traceparentLen:]
	id, parent, flags := header[traceIDFrom:traceIDTo], header[parentIDFrom:parentIDTo], header[parentIDTo+1:traceparentLen]
	switch {
	case header[2] != '-' || header[traceIDTo] != '-' || header[parentIDTo] != '-':
		return ""
	case !isHex(version) || version == "ff" || !isHex(id) || !isHex(parent) || !isHex(flags) || isZeros(id) || isZeros(parent):
		return ""
	case version == "00" && more != "", more != "" && more[0] != '-', !isPlain(more):
		return ""
	}
	return id
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isZeros(s string) bool {
	for i := range len(s) {
		if s[i] != '0' {
			return false
		}
	}
	return true
}

// isPlain reports whether s may stand in a header.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
