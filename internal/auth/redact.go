package auth

import (
	"context"
	"log/slog"
	"regexp"
)

// secretPattern matches a secret without its namespace, and the beginning of one: the prefix and at least 8 characters.
// The case is ignored: net/http changes that of header names.
var secretPattern = regexp.MustCompile(`(?i)` + Prefix + `[A-Z0-9_-]{8,}`)

// redactedSecret replaces a secret in a text.
const redactedSecret = Prefix + "(hidden)"

// Redact replaces everything in a text that looks like a secret or like the beginning of one. The namespace of a secret
// remains.
func Redact(text string) string { return secretPattern.ReplaceAllLiteralString(text, redactedSecret) }

// ContainsSecret reports whether a text contains something that looks like a secret or like the beginning of one.
func ContainsSecret(text string) bool { return secretPattern.MatchString(text) }

// RedactingHandler returns a handler that passes records on without secrets in their message and attributes.
func RedactingHandler(next slog.Handler) slog.Handler { return redactingHandler{next} }

type redactingHandler struct{ slog.Handler }

func (h redactingHandler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(redactAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

func (h redactingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = redactAttr(a)
	}
	return redactingHandler{h.Handler.WithAttrs(clean)}
}

func (h redactingHandler) WithGroup(name string) slog.Handler {
	return redactingHandler{h.Handler.WithGroup(name)}
}

func redactAttr(a slog.Attr) slog.Attr {
	a.Key, a.Value = Redact(a.Key), a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Redact(a.Value.String()))
	case slog.KindAny:
		if text := a.Value.String(); ContainsSecret(text) { // an error, for example
			a.Value = slog.StringValue(Redact(text))
		}
	case slog.KindGroup:
		var clean []slog.Attr
		for _, inner := range a.Value.Group() {
			clean = append(clean, redactAttr(inner))
		}
		a.Value = slog.GroupValue(clean...)
	}
	return a
}
