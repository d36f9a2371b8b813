package effect

import (
	"context"
	"encoding/hex"

	"github.com/flightd/flightd/flight"
)

// HeaderTraceparent is the header of W3C Trace Context that names the trace of a request.
const HeaderTraceparent = "Traceparent"

// The parts of a traceparent: version, trace id, parent id, flags, with a dash between them.
const (
	traceparentLen = 2 + 1 + 32 + 1 + 16 + 1 + 2
	traceIDStart   = 3
	traceIDEnd     = traceIDStart + 32
	parentIDStart  = traceIDEnd + 1
	parentIDEnd    = parentIDStart + 16
	// maxTraceparent bounds the length in later versions, which may append fields.
	maxTraceparent = 256
)

type traceKey struct{}

// WithTraceparent returns a context with a traceparent. Every request of its calls carries the header. The effect of an attempt gets the
// attempt's own, if the node exports spans. A malformed header is ignored, as the standard requires.
func WithTraceparent(ctx context.Context, header string) context.Context {
	if TraceID(header) == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, header)
}

// Traceparent returns the header set by WithTraceparent, or "" if there is none.
func Traceparent(ctx context.Context) string {
	header, _ := ctx.Value(traceKey{}).(string)
	return header
}

// TraceID returns the trace id in a traceparent, 32 hexadecimal digits, or "" for a malformed header.
func TraceID(header string) string {
	if len(header) < traceparentLen || len(header) > maxTraceparent {
		return ""
	}
	version, more := header[:2], header[traceparentLen:]
	id, parent, flags := header[traceIDStart:traceIDEnd], header[parentIDStart:parentIDEnd], header[parentIDEnd+1:traceparentLen]
	switch {
	case header[2] != '-' || header[traceIDEnd] != '-' || header[parentIDEnd] != '-':
		return ""
	case !isHex(version) || version == "ff" || !isHex(id) || !isHex(parent) || !isHex(flags) || isZeros(id) || isZeros(parent):
		return ""
	case version == "00" && more != "", more != "" && more[0] != '-', !isHeaderText(more):
		return ""
	}
	return id
}

// SampledTrace returns the span that a traceparent names, or the zero Trace for a malformed header and for a trace that is not sampled.
func SampledTrace(header string) (t flight.Trace) {
	if TraceID(header) == "" {
		return t
	}
	var flags [1]byte
	_, _ = hex.Decode(flags[:], []byte(header[parentIDEnd+1:traceparentLen])) // TraceID has checked the digits
	if flags[0]&1 == 1 {
		_, _ = hex.Decode(t[:16], []byte(header[traceIDStart:traceIDEnd]))
		_, _ = hex.Decode(t[16:], []byte(header[parentIDStart:parentIDEnd]))
	}
	return t
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

// isHeaderText reports whether s is printable ASCII without spaces.
func isHeaderText(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
