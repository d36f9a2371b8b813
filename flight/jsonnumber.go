package flight

import (
	"math"
	"strconv"
	"strings"
)

const (
	// maxExactInteger is the greatest integer up to which a double holds every integer.
	maxExactInteger = 1 << 53
	// exponentFrom is where canonical JSON begins to spell a number with an exponent. Below it an integer has its digits only.
	exponentFrom = 1e21
)

const tooLargeInteger = "an integer beyond 2^53 is not held exactly by every reader; write it as a string"

// checkNumber says what is wrong with a number of JSON: "" where a double holds it (see CanonicalJSON).
func checkNumber(w string) string {
	if !strings.ContainsAny(w, ".eE") {
		if n, err := strconv.ParseInt(w, 10, 64); err != nil || n > maxExactInteger || n < -maxExactInteger {
			return tooLargeInteger
		}
		return ""
	}
	f, err := strconv.ParseFloat(w, 64)
	if err != nil {
		return "a double does not reach so far; write this number as a string"
	}
	if size := math.Abs(f); size > maxExactInteger && size < exponentFrom { // 1e16: its canonical spelling would be refused
		return tooLargeInteger
	}
	if decimalOf(w) != decimalOf(strconv.FormatFloat(f, 'e', -1, 64)) {
		return "a double does not hold this number exactly; write it as a string"
	}
	return ""
}

// decimal is the value of a number as 0.digits times 10^exponent, without zeros at either end of the digits. Zero is
// the zero decimal. Equal values have equal decimals.
type decimal struct {
	digits   string
	exponent int
	negative bool
}

// decimalOf reads a number that keeps to the grammar of JSON.
func decimalOf(w string) decimal {
	w, negative := strings.CutPrefix(w, "-")
	mantissa, exponent := w, 0
	if at := strings.IndexAny(w, "eE"); at >= 0 {
		// An exponent too long for an int is cut off at its bounds: no double comes near it.
		exponent, _ = strconv.Atoi(w[at+1:])
		mantissa = w[:at]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	significant := strings.TrimLeft(all, "0")
	if significant == "" {
		return decimal{}
	}
	return decimal{
		digits:   strings.TrimRight(significant, "0"),
		exponent: exponent + len(whole) - (len(all) - len(significant)),
		negative: negative,
	}
}
