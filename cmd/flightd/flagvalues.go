package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/httpapi/wire"
)

// forever is a wait without a bound.
const forever = time.Duration(-1)

// waitValue is the flag --wait: a duration, 0 or forever.
type waitValue time.Duration

func (w *waitValue) String() string {
	if time.Duration(*w) == forever {
		return "forever"
	}
	return time.Duration(*w).String()
}

func (w *waitValue) Set(s string) error {
	if s == "forever" {
		*w = waitValue(forever)
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is neither a duration such as 20s, nor 0, nor forever", s)
	}
	*w = waitValue(d)
	return nil
}

func (w *waitValue) Type() string { return "duration" }

// sinceValue is the flag --since: a duration, also in days, or a time. 0 is no bound.
type sinceValue time.Duration

func (v *sinceValue) String() string {
	if *v == 0 {
		return "0"
	}
	return time.Duration(*v).String()
}

func (v *sinceValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		d, err = wire.ParseRetention(s) // as the API parses it
	}
	if at, wrong := time.Parse(time.RFC3339, s); wrong == nil {
		d, err = time.Since(at), nil
	}
	if err != nil || d < 0 {
		return errors.New("want a duration or a past time, such as 1h, 30d or 2026-01-31T12:00:00Z")
	}
	*v = sinceValue(d)
	return nil
}

func (v *sinceValue) Type() string { return "duration" }

// endValue is a flag for the end of a validity: a duration from now, also in days, or with orTime a time. 0 is no end.
type endValue struct {
	in     time.Duration
	orTime bool
}

func (v *endValue) String() string {
	if v.in == 0 {
		return "0"
	}
	return v.in.String()
}

func (v *endValue) Set(s string) error {
	if s == "0" {
		v.in = 0
		return nil
	}
	d, err := wire.ParseRetention(s) // has the same units and bounds
	want := "want a duration from 1s to 3660d, such as 1h or 90d"
	if v.orTime {
		want = "want a duration from 1s to 3660d or a future time, such as 90d, 2031-01-31 or 2031-01-31T12:00:00Z"
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if at, wrong := time.Parse(layout, s); wrong == nil {
				if d, err = time.Until(at), nil; d <= 0 {
					return fmt.Errorf("it is in the past; %s", want)
				}
			}
		}
	}
	if err != nil || d > wire.MaxRetention {
		return errors.New(want)
	}
	v.in = d
	return nil
}

func (v *endValue) Type() string { return "duration" }

// codesValue is a flag for exit codes from 1 to 125. Shells use higher ones for commands that could not be run or were
// killed, and those codes prove nothing about earlier commands of a script.
type codesValue []int

func (v *codesValue) String() string { return strings.Trim(fmt.Sprint([]int(*v)), "[]") }

func (v *codesValue) Set(s string) error {
	code, err := strconv.Atoi(s)
	if err != nil || code < 1 || code > 125 {
		return fmt.Errorf("%q is not an exit code from 1 to 125", s)
	}
	*v = append(*v, code)
	return nil
}

func (v *codesValue) Type() string { return "code" }

// sizeValue is a flag in bytes: 49152, 48KiB, 1MiB.
type sizeValue int

func (v *sizeValue) String() string {
	if *v != 0 && *v%1024 == 0 {
		return strconv.Itoa(int(*v)/1024) + "KiB"
	}
	return strconv.Itoa(int(*v))
}

func (v *sizeValue) Set(s string) error {
	unit := 1
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if number, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = number, bytes
			break
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<30/unit {
		return fmt.Errorf("%q is not a size such as 48KiB", s)
	}
	*v = sizeValue(n * unit)
	return nil
}

func (v *sizeValue) Type() string { return "size" }

// choice is a flag that takes one of a list of words.
type choice struct {
	value string
	words []string
}

func newChoice(words ...string) *choice { return &choice{value: words[0], words: words} }

func (c *choice) String() string { return c.value }

func (c *choice) Set(s string) error {
	for _, w := range c.words {
		if s == w {
			c.value = s
			return nil
		}
	}
	err := fmt.Errorf("%q is not one of %s", s, strings.Join(c.words, ", "))
	if meant := nearest(s, c.words); meant != "" {
		err = fmt.Errorf("%w; %s", err, didYouMean(meant))
	}
	return err
}

func (c *choice) Type() string { return strings.Join(c.words, "|") }
