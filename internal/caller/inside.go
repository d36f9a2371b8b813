package caller

import (
	"context"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Inside says whose handler a context is given to. A context that answers its Value with it need not be wrapped.
type Inside struct {
	Doer any // who runs it
	Key  flight.Key
	Span context.Context // the attempt's own: when it has ended, nobody is inside any more
}

type insideKey struct{}

// Value answers what a context is asked for by CheckInside.
func (i *Inside) Value(key any) (any, bool) {
	if i == nil || key != (insideKey{}) {
		return nil, false
	}
	return i, true
}

// Mark is the attempt's context as its handler, or its look-up, is to get it.
func Mark(span context.Context, doer any, key flight.Key) context.Context {
	return context.WithValue(span, insideKey{}, &Inside{Doer: doer, Key: key, Span: span})
}

// CheckInside refuses a call that the handler, or the look-up, of this very key makes: it would wait for itself.
func CheckInside(ctx context.Context, doer any, key flight.Key) error {
	i, _ := ctx.Value(insideKey{}).(*Inside)
	if i == nil || i.Doer != doer || i.Key != key || i.Span.Err() != nil {
		return nil
	}
	return &flight.InvalidError{Field: "key", Detail: fmt.Sprintf(
		"the handler of %s asks for the same key and would wait for itself; another effect needs a key of its own", key)}
}
