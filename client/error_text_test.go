package client

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// The detail of a problem with one mistake is that mistake, and is printed once.
func TestAnErrorSaysEachThingOnce(t *testing.T) {
	first := wire.FieldError{Parameter: "state", Detail: `"x" is no state`}
	second := wire.FieldError{Pointer: "/id", Detail: "it is empty"}
	text := newError(Problem{Code: wire.InputInvalid, Detail: (&wire.Invalid{FieldError: first}).Error(), Errors: []FieldError{first, second}}, flight.Key{}).Error()
	require.Equal(t, 1, strings.Count(text, "is no state"), "it says %s", text)
	require.Equal(t, 1, strings.Count(text, "it is empty"), "it says %s", text)
}
