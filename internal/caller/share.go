package caller

import (
	"bytes"
	"errors"

	"github.com/flightd/flightd/effect"
)

// Share gives one of several callers what they all waited for: what the first one executed, the others joined. Each has a
// body of its own.
func Share(result effect.Result, err error, as effect.Source) (effect.Result, error) {
	result = ownOf(result, as)
	if err == nil {
		return result, nil
	}
	var declined *effect.Declined
	var unrecorded *effect.Unrecorded
	switch {
	case errors.As(err, &declined):
		return result, &effect.Declined{Result: result}
	case errors.As(err, &unrecorded):
		return result, &effect.Unrecorded{Result: ownOf(unrecorded.Result, as), Cause: unrecorded.Cause, Where: unrecorded.Where}
	}
	return result, err
}

func ownOf(result effect.Result, as effect.Source) effect.Result {
	if as == effect.Joined && result.Source == effect.Executed {
		result.Source = effect.Joined
	}
	result.Answer.Body = bytes.Clone(result.Answer.Body)
	return result
}
