package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

type colour string

type card struct {
	Number string    `json:"number"`
	Until  time.Time `json:"until"`
}

type loop struct {
	Next *loop `json:"next"`
}

// oddResult is a result with an external id.
type oddResult struct {
	V any `json:"v"`
}

func (*oddResult) ExternalID() string { return "ch_1" }

// oddValues are the odd values of the Go client: see values_test.go.
func oddValues() map[string]any {
	cycle := new(loop)
	cycle.Next = cycle
	return map[string]any{
		"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1), "2^53+1": int64(1)<<53 + 1, "1.0": 1.0, "0.1+0.2": 0.30000000000000004,
		"empty text": "", "empty list": []int{}, "empty object": map[string]int{}, "null": nil, "null in a list": []any{nil},
		"enum": colour("red"), "enum of numbers": time.Wednesday, "dataclass": card{"4242", time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)},
		"date with zone": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "bytes": []byte{0, 255}, "byte order mark": "\ufeffx", "NFC": "\u00e9", "NFD": "e\u0301",
		"half a surrogate": "\xed\xa0\x80x", "map with numbers": map[int]string{1: "a"}, "cycle": cycle, "function": func() {},
	}
}

func oddNames() map[string]string {
	return map[string]string{"empty": "", "byte order mark": "\ufeffx", "NFC": "\u00e9", "NFD": "e\u0301", "half a surrogate": "\xed\xa0\x80",
		"long": strings.Repeat("x", 256), "space": "a b"}
}

func oddDurations() map[string]time.Duration {
	return map[string]time.Duration{"negative": -time.Second, "a tenth of a millisecond": 100 * time.Microsecond, "millisecond": time.Millisecond,
		"400 days": 400 * 24 * time.Hour, "zero": 0}
}

// odd puts an odd value through an entrance of the client.
func (d *driver) odd(ctx context.Context, c *client.Client, request call) (a answer, err error) {
	ref, value := client.Key(request.Name, request.ID), oddValues()[request.Odd]
	a.Source = "accepted"
	var job *client.Job
	switch request.Entrance {
	case "work":
		w := c.Worker()
		client.Work(w, request.Name, func(_ context.Context, _ client.Attempt, in struct{ Odd string }) (*oddResult, error) {
			return &oddResult{oddValues()[in.Odd]}, nil
		})
		go func() { _ = w.Run(ctx) }() // it ends with the client
		return a, nil
	case "call":
		_, err = client.Do(ctx, c, ref, map[string]any{"v": value}, func(context.Context, client.Attempt) (int, error) { return 1, nil })
		return a, err
	case "submit":
		_, err = c.Submit(ctx, ref, map[string]any{"v": value})
		return a, err
	case "result":
		own := &oddResult{value}
		act := func(context.Context, client.Attempt) (*oddResult, error) { return own, nil }
		got, err := client.Do(ctx, c, ref, nil, act)
		a.Source = map[bool]string{true: "kept", false: "lost"}[got == own]
		if err != nil {
			return a, err
		}
		_, err = client.Do(ctx, c, ref, nil, act)
		a.Source += map[bool]string{true: " replayed", false: " " + errorName(err)}[err == nil]
		return a, nil
	case "provider":
		key, err := c.Key(request.Name, request.ID)
		if err != nil {
			return a, err
		}
		_, err = c.Do(ctx, effect.Call{Key: key, Submission: flight.Submission{Fingerprint: flight.FingerprintBytes(nil)}},
			func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, request.Effect, http.NoBody)
				if err != nil {
					return effect.Answer{}, err
				}
				return client.FromHTTP((&http.Client{Transport: at.Transport(nil)}).Do(r))
			})
		return a, err
	case "action":
		job, err = c.Submit(ctx, client.Key(oddNames()[request.Odd], request.ID), nil)
	case "id":
		job, err = c.Submit(ctx, client.Key(request.Name, oddNames()[request.Odd]), nil)
	case "lane":
		job, err = c.Submit(ctx, ref, nil, client.Lane(oddNames()[request.Odd]))
	default:
		given := oddDurations()[request.Odd]
		option, known := map[string]client.JobOption{"delay": client.Delay(given), "timeout": client.Timeout(given), "window": client.Resend(given),
			"settle": client.JobPolicy(flight.Policy{SettleDelay: given})}[request.Entrance]
		if !known {
			return a, fmt.Errorf("unknown entrance %q", request.Entrance)
		}
		_, err = c.Submit(ctx, ref, nil, option)
		return a, err
	}
	if err != nil {
		return a, err
	}
	a.Source = job.Key.String()
	return a, nil
}
