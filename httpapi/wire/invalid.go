package wire

import "fmt"

// Invalid is the error about a rejected request, with the place of the fault. Nothing was changed.
type Invalid struct {
	Code Code
	FieldError
	Hint string // empty: that of the code
}

func (e *Invalid) Error() string {
	switch {
	case e.Pointer != "":
		return e.Pointer + ": " + e.Detail
	case e.Header != "":
		return e.Header + ": " + e.Detail
	case e.Parameter != "":
		return e.Parameter + ": " + e.Detail
	}
	return e.Detail
}

// BadField returns an Invalid about a field of the body. The pointer "" means the whole body.
func BadField(pointer, format string, args ...any) *Invalid {
	return &Invalid{Code: InputInvalid, FieldError: FieldError{Pointer: pointer, Detail: fmt.Sprintf(format, args...)}}
}

// BadHeader returns an Invalid about a header.
func BadHeader(name, format string, args ...any) *Invalid {
	return &Invalid{Code: InputInvalid, FieldError: FieldError{Header: name, Detail: fmt.Sprintf(format, args...)}}
}

// BadParameter returns an Invalid about a query parameter.
func BadParameter(name, format string, args ...any) *Invalid {
	return &Invalid{Code: InputInvalid, FieldError: FieldError{Parameter: name, Detail: fmt.Sprintf(format, args...)}}
}

func setHint(e *Invalid, hint string) *Invalid {
	e.Hint = hint
	return e
}
