package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/flightd/flightd/httpapi/wire"
)

// ledgerText describes a ledger, so that a person notices the wrong one, as in "2,361 flights, newest 4 min ago, 10 in
// doubt".
func ledgerText(l *wire.LedgerInfo, now time.Time) string {
	if l.Empty {
		return "new and empty"
	}
	text := groupDigits(l.Flights) + " flights"
	if l.Flights == 1 {
		text = "1 flight"
	}
	if !l.Newest.IsZero() {
		text += ", newest " + ageText(now.Sub(l.Newest.Time)) + " ago"
	}
	if l.InDoubt > 0 {
		text += ", " + groupDigits(l.InDoubt) + " in doubt"
	}
	return text
}

// ageText rounds a duration down to whole seconds, minutes, hours or days.
func ageText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// groupDigits writes a number with a comma before each group of three digits.
func groupDigits(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
