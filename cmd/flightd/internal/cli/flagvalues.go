package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/flightd/flightd/httpapi/wire"
)

// durationValue is the value of a duration flag, which also takes days.
type durationValue time.Duration

// DurationVar adds a duration flag, which also takes days.
func DurationVar(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	flags.Var((*durationValue)(p), name, usage)
}

func (v *durationValue) String() string {
	if *v == 0 {
		return "0"
	}
	return time.Duration(*v).String()
}

func (v *durationValue) Set(s string) error {
	d, err := wire.ParseDuration(s)
	if err == nil {
		*v = durationValue(d)
	}
	return err
}

func (v *durationValue) Type() string { return "duration" }

// Forever is a wait without a bound.
const Forever = time.Duration(-1)

// WaitValue is the flag --wait: a duration, 0 or forever.
type WaitValue time.Duration

func (w *WaitValue) String() string {
	if time.Duration(*w) == Forever {
		return "forever"
	}
	return time.Duration(*w).String()
}

func (w *WaitValue) Set(s string) error {
	if s == "forever" {
		*w = WaitValue(Forever)
		return nil
	}
	d, err := wire.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is neither a duration such as 20s, nor 0, nor forever", s)
	}
	*w = WaitValue(d)
	return nil
}

func (w *WaitValue) Type() string { return "duration" }

// SinceValue is the flag --since: a duration, also in days, or a time. 0 is no bound.
type SinceValue time.Duration

func (v *SinceValue) String() string {
	if *v == 0 {
		return "0"
	}
	return time.Duration(*v).String()
}

func (v *SinceValue) Set(s string) error {
	d, err := wire.ParseDuration(s)
	if at, wrong := time.Parse(time.RFC3339, s); wrong == nil {
		d, err = time.Since(at), nil
	}
	if err != nil || d < 0 {
		return errors.New("want a duration or a past time, such as 1h, 30d or 2026-01-31T12:00:00Z")
	}
	*v = SinceValue(d)
	return nil
}

func (v *SinceValue) Type() string { return "duration" }

// EndValue is a flag for the end of a validity: a duration from now, also in days, or with orTime a time. 0 is no end.
type EndValue struct {
	In     time.Duration
	OrTime bool
}

func (v *EndValue) String() string {
	if v.In == 0 {
		return "0"
	}
	return v.In.String()
}

func (v *EndValue) Set(s string) error {
	if s == "0" {
		v.In = 0
		return nil
	}
	d, err := wire.ParseRetention(s) // has the same units and bounds
	want := "want a duration from 1s to 3660d, such as 1h or 90d"
	if v.OrTime {
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
	v.In = d
	return nil
}

func (v *EndValue) Type() string { return "duration" }

// CodesValue is a flag for exit codes from 1 to 125. Shells use higher ones for commands that could not be run or were
// killed, and those codes prove nothing about earlier commands of a script.
type CodesValue []int

func (v *CodesValue) String() string { return strings.Trim(fmt.Sprint([]int(*v)), "[]") }

func (v *CodesValue) Set(s string) error {
	code, err := strconv.Atoi(s)
	if err != nil || code < 1 || code > 125 {
		return fmt.Errorf("%q is not an exit code from 1 to 125", s)
	}
	*v = append(*v, code)
	return nil
}

func (v *CodesValue) Type() string { return "code" }

// SizeValue is a flag in bytes: 49152, 48KiB, 1MiB.
type SizeValue int

func (v *SizeValue) String() string {
	if *v != 0 && *v%1024 == 0 {
		return strconv.Itoa(int(*v)/1024) + "KiB"
	}
	return strconv.Itoa(int(*v))
}

func (v *SizeValue) Set(s string) error {
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
	*v = SizeValue(n * unit)
	return nil
}

func (v *SizeValue) Type() string { return "size" }

// Choice is a flag that takes one of a list of words.
type Choice struct {
	Value string
	Words []string
}

func NewChoice(words ...string) *Choice { return &Choice{Value: words[0], Words: words} }

func (c *Choice) String() string { return c.Value }

func (c *Choice) Set(s string) error {
	if slices.Contains(c.Words, s) {
		c.Value = s
		return nil
	}
	err := fmt.Errorf("%q is not one of %s", s, strings.Join(c.Words, ", "))
	if suggestion := Nearest(s, c.Words); suggestion != "" {
		err = fmt.Errorf("%w; %s", err, DidYouMean(suggestion))
	}
	return err
}

func (c *Choice) Type() string { return strings.Join(c.Words, "|") }
