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

// parsedFlag is a flag of any type: parse reads its value, text formats it, and kind names it in the help.
type parsedFlag[T any] struct {
	p     *T
	kind  string
	parse func(string) (T, error)
	text  func(T) string
}

func (f *parsedFlag[T]) String() string { return f.text(*f.p) }
func (f *parsedFlag[T]) Type() string   { return f.kind }

func (f *parsedFlag[T]) Set(s string) error {
	parsed, err := f.parse(s)
	if err == nil {
		*f.p = parsed
	}
	return err
}

// addDuration adds a flag for a duration that parse reads.
func addDuration(flags *pflag.FlagSet, p *time.Duration, name, usage string, parse func(string) (time.Duration, error)) {
	flags.Var(&parsedFlag[time.Duration]{p, "duration", parse, func(d time.Duration) string {
		if d == 0 {
			return "0"
		}
		return d.String()
	}}, name, usage)
}

// DurationVar adds a duration flag, which also takes days.
func DurationVar(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	addDuration(flags, p, name, usage, wire.ParseDuration)
}

// Forever is a wait without a bound.
const Forever = time.Duration(-1)

// WaitVar adds a flag for a wait: a duration, 0 or forever.
func WaitVar(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	flags.Var(&parsedFlag[time.Duration]{p, "duration", func(s string) (time.Duration, error) {
		if s == "forever" {
			return Forever, nil
		}
		d, err := wire.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, fmt.Errorf("%q is neither a duration such as 20s, nor 0, nor forever", s)
		}
		return d, nil
	}, func(d time.Duration) string {
		if d == Forever {
			return "forever"
		}
		return d.String()
	}}, name, usage)
}

// SinceVar adds a flag for how long ago a list begins: a duration, also in days, or a time. 0 is no bound.
func SinceVar(flags *pflag.FlagSet, p *time.Duration, usage string) {
	addDuration(flags, p, "since", usage, func(s string) (time.Duration, error) {
		d, err := wire.ParseDuration(s)
		if at, wrong := time.Parse(time.RFC3339, s); wrong == nil {
			d, err = time.Since(at), nil
		}
		if err != nil || d < 0 {
			return 0, errors.New("want a duration or a past time, such as 1h, 30d or 2026-01-31T12:00:00Z")
		}
		return d, nil
	})
}

// EndVar adds a flag for the end of a validity: a duration from now, also in days, or with orTime a time. 0 is no end.
func EndVar(flags *pflag.FlagSet, p *time.Duration, name, usage string, orTime bool) {
	addDuration(flags, p, name, usage, func(s string) (time.Duration, error) {
		if s == "0" {
			return 0, nil
		}
		d, err := wire.ParseRetention(s) // has the same units and bounds
		want := "want a duration from 1s to 3660d, such as 1h or 90d"
		if orTime {
			want = "want a duration from 1s to 3660d or a future time, such as 90d, 2031-01-31 or 2031-01-31T12:00:00Z"
			for _, layout := range []string{time.RFC3339, time.DateOnly} {
				if at, wrong := time.Parse(layout, s); wrong == nil {
					if d, err = time.Until(at), nil; d <= 0 {
						return 0, fmt.Errorf("it is in the past; %s", want)
					}
				}
			}
		}
		if err != nil || d > wire.MaxRetention {
			return 0, errors.New(want)
		}
		return d, nil
	})
}

// CodesVar adds a flag for exit codes from 1 to 125. Shells use higher ones for commands that could not be run or were
// killed, and those codes prove nothing about earlier commands of a script.
func CodesVar(flags *pflag.FlagSet, p *[]int, name, usage string) {
	flags.Var(&parsedFlag[[]int]{p, "code", func(s string) ([]int, error) {
		code, err := strconv.Atoi(s)
		if err != nil || code < 1 || code > 125 {
			return nil, fmt.Errorf("%q is not an exit code from 1 to 125", s)
		}
		return append(*p, code), nil
	}, func(codes []int) string { return strings.Trim(fmt.Sprint(codes), "[]") }}, name, usage)
}

// SizeVar adds a flag in bytes: 49152, 48KiB, 1MiB.
func SizeVar(flags *pflag.FlagSet, p *int, name string, value int, usage string) {
	*p = value
	flags.Var(&parsedFlag[int]{p, "size", func(s string) (int, error) {
		number, unit := s, 1
		if kib, ok := strings.CutSuffix(s, "KiB"); ok {
			number, unit = kib, 1<<10
		} else if mib, ok := strings.CutSuffix(s, "MiB"); ok {
			number, unit = mib, 1<<20
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > 1<<30/unit {
			return 0, fmt.Errorf("%q is not a size such as 48KiB", number)
		}
		return n * unit, nil
	}, SizeText}, name, usage)
}

// SizeText formats a size as its flag has it.
func SizeText(n int) string {
	if n != 0 && n%1024 == 0 {
		return strconv.Itoa(n/1024) + "KiB"
	}
	return strconv.Itoa(n)
}

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
