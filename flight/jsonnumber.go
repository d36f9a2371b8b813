package flight

import (
	"math"
	"strconv"
	"strings"
)

const (
	// maxExactInteger is the greatest integer below which a double holds every integer.
	maxExactInteger = 1 << 53
	// minExponentForm is the least integer that the canonical form writes with an exponent. A smaller one is written in digits.
	minExponentForm = 1e21
)

const detailInteger = "an integer beyond 2^53 is not read exactly by every parser; send it as a string"

// checkNumber returns the reason for which a number of JSON is rejected, and "" if a double holds it (see
// CanonicalJSON).
func checkNumber(w string) string {
	if !strings.ContainsAny(w, ".eE") {
		if n, err := strconv.ParseInt(w, 10, 64); err != nil || n > maxExactInteger || n < -maxExactInteger {
			return detailInteger
		}
		return ""
	}
	f, err := strconv.ParseFloat(w, 64)
	if err != nil {
		return "the number is out of the range of a double; send it as a string"
	}
	if size := math.Abs(f); size > maxExactInteger && size < minExponentForm { // 1e16: its canonical form would be rejected
		return detailInteger
	}
	if CompareNumbers(w, strconv.FormatFloat(f, 'e', -1, 64)) != 0 {
		return "a double does not hold this number exactly; send it as a string"
	}
	return ""
}

// CompareNumbers compares the values of two numbers in the grammar of JSON, exactly.
func CompareNumbers(a, b string) int {
	x, y := decimalOf(a), decimalOf(b)
	if x.sign != y.sign || x.sign == 0 {
		return x.sign - y.sign
	}
	switch {
	case x.exponent != y.exponent && (x.exponent > y.exponent) == (x.sign > 0):
		return 1
	case x.exponent != y.exponent:
		return -1
	}
	return x.sign * strings.Compare(x.digits, y.digits)
}

// decimal is the value of a number as 0.digits times 10^exponent, without zeros at either end of the digits. The
// number 0 is the zero value.
type decimal struct {
	sign     int
	digits   string
	exponent int
}

// decimalOf reads a number in the grammar of JSON.
func decimalOf(w string) decimal {
	w, negative := strings.CutPrefix(w, "-")
	mantissa, exponent := w, 0
	if at := strings.IndexAny(w, "eE"); at >= 0 {
		exponent, _ = strconv.Atoi(w[at+1:]) // its bounds for an exponent that is too long, which no double has
		exponent = min(max(exponent, -1<<40), 1<<40)
		mantissa = w[:at]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	significant := strings.TrimLeft(all, "0")
	if significant == "" {
		return decimal{}
	}
	d := decimal{sign: 1, digits: strings.TrimRight(significant, "0"), exponent: exponent + len(whole) - (len(all) - len(significant))}
	if negative {
		d.sign = -1
	}
	return d
}
