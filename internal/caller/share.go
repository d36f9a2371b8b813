package caller

import (
	"bytes"
	"errors"

	"github.com/flightd/flightd/effect"
)

// Share gives one of several callers what they all waited for: what the first one executed, the others joined. Each has a
// body of its own.
func Share(result effect.Result, err error, as effect.Source) (effect.Result, error) {
	if as == effect.Joined && result.Source == effect.Executed {
		result.Source = effect.Joined
	}
	result.Answer.Body = bytes.Clone(result.Answer.Body)
	var declined *effect.Declined
	if errors.As(err, &declined) {
		return result, &effect.Declined{Result: result}
	}
	return result, err
}
