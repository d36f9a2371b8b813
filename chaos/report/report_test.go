package report

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

const markup = `default/<script>alert(1)</script>"><img src="https://example.com/x.png">`

// sample returns a run of some length, with faults one after the other. Every promise holds in it.
func sample(length time.Duration, faults int) *Result {
	random := rand.New(rand.NewPCG(1, 2))
	began := time.Date(2026, 11, 24, 3, 4, 5, 0, time.UTC)
	r := &Result{Seed: 4711, Version: "v0.9.0-12-g2630e7a", Machine: "AMD EPYC 7763, 2 cores, go1.26.8", Command: "go run -C chaos . -nodes=5 -seed=4711",
		Began: began, Ended: began.Add(length), Nodes: 5, Etcd: "in the nodes", NotCovered: []string{"Loss of power of all machines at once: make power-cut shows it."}}
	kinds := []string{"node killed", "node frozen", "node cut off from the ledger alone", "clock six hours ahead", "provider answers late", "no majority of the ledger",
		"the nodes lose a third of the packets between them", "links of a node flap", "worker stands still for 3 sessions", "callers frozen", "all nodes killed", "bridge: one node sees all, the others only it"}
	victims := []string{"a", "b", "c", "d", "e", "provider", "worker-1", "worker-2", "worker-3", "callers-go", "callers-py"}
	for i := range faults {
		at := began.Add(time.Duration((0.1 + float64(i) + 0.2*random.Float64()) * float64(length) / float64(faults+1)))
		f := Fault{Kind: kinds[random.IntN(len(kinds))], Victim: victims[random.IntN(len(victims))], Began: at, Healed: at.Add(time.Duration(2e9 + random.Int64N(7e9))), Round: i/3 + 1}
		if f.Bites = 1 + random.IntN(400); i%19 == 18 {
			f.Bites = 0
		}
		f.Bite = fmt.Sprintf("%d packets dropped on 4 links", f.Bites)
		r.Faults = append(r.Faults, f)
		if i%3 == 2 {
			r.Rounds = append(r.Rounds, Round{Began: r.Faults[i-2].Began, Healed: f.Healed, Leader: time.Duration(random.Int64N(2e9)), Flight: time.Duration(4e8 + random.Int64N(3e9)), Whole: time.Duration(2e9 + random.Int64N(9e9))})
		}
	}
	for at := range int(length.Seconds()) {
		s := Second{At: at, Calls: 180 + random.IntN(40), P50: time.Duration(7e6 + random.Int64N(3e6)), P99: time.Duration(3e7 + random.Int64N(2e7))}
		for i := max(0, at*faults/int(length.Seconds())-2); i < min(faults, at*faults/int(length.Seconds())+2); i++ {
			if now := began.Add(time.Duration(at) * time.Second); now.After(r.Faults[i].Began) && now.Before(r.Faults[i].Healed) {
				s.Errors += random.IntN(30)
				s.Calls -= random.IntN(90)
				s.P99 += time.Duration(random.Int64N(5e9))
				s.P50 *= 2
			}
		}
		if s.Effects, s.Replays = s.Calls/2, s.Calls/3; at%97 > 94 {
			s = Second{At: at}
		}
		r.Seconds = append(r.Seconds, s)
	}
	for i, name := range []string{"one effect", "same key", "kept", "true", "keeps", "not blocked", "recovers"} {
		r.Invariants = append(r.Invariants, Invariant{Name: name, Promise: "An acknowledged receipt is the same for everybody, for ever, at every node.", Checked: 41_234 / (i + 1)})
	}
	for n := 1; n <= 43; n++ {
		r.Hazards = append(r.Hazards, Hazard{Number: n, Text: "A caller pauses between its claim and its open. Its session ends, and another caller opens the key.", Met: n * n % 11 * 7, How: "keys shared by four callers, under: callers frozen"})
	}
	r.Workloads = []Workload{{"calls at a steady pace", 3_980, 3_981, "map[succeeded:3970 unavailable:10]"}, {"keys shared by four callers", 48_120, 12_030, "map[succeeded:48001 in_doubt:19 unavailable:100]"}, {"sagas", 300, 2_411, "map[succeeded:211 undone:89]"}}
	return r
}

// broken breaks two promises, one of them for a key that is markup.
func broken(r *Result) *Result {
	at := r.Faults[1].Began
	r.Invariants[0].Violations = []Violation{{markup, "two effects, and its recovery is hold"}, {"default/hold/k-17", "two effects, and its recovery is hold"}}
	r.Invariants[6].Violations = []Violation{{"round 2", "a node led only 3.8s after the last fault was healed; the limit is 3s"}}
	r.Rounds[1].Leader = 3800 * time.Millisecond
	for _, key := range []string{"default/hold/k-17", markup} {
		r.Histories = append(r.Histories, History{key, []Line{
			{at.Add(-900 * time.Millisecond), "caller go-3", "called at 03:04:09.120: unavailable attempt 1 " + key},
			{at, "fault", "b: node frozen until 03:04:31.007"},
			{at.Add(210 * time.Millisecond), "provider", key + ": a request of go with fencing token 81.1 and idempotency key 6f1c; known: false; "},
			{at.Add(4 * time.Second), "node c", "the session of attempt 1 has ended"},
			{at.Add(4300 * time.Millisecond), "provider", key + ": a request of python with fencing token 81.2 and idempotency key 6f1c; known: false; "},
			{at.Add(4500 * time.Millisecond), "caller py-1", "called at 03:04:12.871: succeeded executed attempt 2"},
			{at.Add(30 * time.Second), "flightd why", "default/hold/k-17  generation 1\n  attempt 1  lost   session ended\n  attempt 2  succeeded"},
		}})
	}
	return r
}

// parsed writes a page and returns its elements by their ids, and all of them.
func parsed(t *testing.T, r *Result) (text string, all []*html.Node, byID map[string]*html.Node) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Write(&out, r))
	doc, err := html.Parse(bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	byID = make(map[string]*html.Node)
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		all = append(all, n)
		if id := attr(n, "id"); id != "" {
			require.NotContains(t, byID, id, "two elements have one id")
			byID[id] = n
		}
	}
	for _, n := range all { // the page loads nothing, and its links lead to places of its own
		require.NotContains(t, []string{"script", "img", "link", "iframe", "object", "image"}, n.Data)
		for _, a := range n.Attr {
			require.NotContains(t, a.Val, "url(")
			require.False(t, strings.HasPrefix(a.Key, "on"), a.Key)
			switch a.Key {
			case "href", "src", "xlink:href", "action", "data", "srcset":
				require.Contains(t, byID, strings.TrimPrefix(a.Val, "#"))
			}
		}
		if n.Data == "style" {
			require.NotContains(t, textOf(n), "url(")
			require.NotContains(t, textOf(n), "@import")
		}
	}
	return out.String(), all, byID
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// follow returns where the first link of an element leads whose text contains a word.
func follow(t *testing.T, byID map[string]*html.Node, from *html.Node, word string) *html.Node {
	t.Helper()
	for n := range from.Descendants() {
		if n.Data == "a" && strings.Contains(textOf(n), word) {
			return byID[strings.TrimPrefix(attr(n, "href"), "#")]
		}
	}
	require.Fail(t, "there is no link", "%q in %q", word, textOf(from))
	return nil
}

func heading(all []*html.Node) string {
	for _, n := range all {
		if n.Data == "h1" {
			return textOf(n)
		}
	}
	return ""
}

// From a broken promise, links lead to its violations and to the history of the key, whose text is as it was seen.
func TestWrite_BrokenPromiseLeadsToItsHistory(t *testing.T) {
	_, all, byID := parsed(t, broken(sample(10*time.Minute, 72)))
	require.Equal(t, "2 of 7 promises broken", heading(all))
	violations := follow(t, byID, byID["promise-0"], "broken 2×")
	history := follow(t, byID, violations, markup)
	require.Contains(t, textOf(history), markup)
	require.Contains(t, textOf(history), "b: node frozen until 03:04:31.007")
	require.Contains(t, textOf(follow(t, byID, violations, "k-17")), "the session of attempt 1 has ended")
	round := follow(t, byID, follow(t, byID, byID["promise-6"], "broken 1×"), "round 2")
	require.Contains(t, textOf(round), "3.8s")
}

// A night has 28,800 seconds and 3,000 faults. The page stays small, and every fault and every answered call is on it.
func TestWrite_Night(t *testing.T) {
	night := sample(8*time.Hour, 3000)
	text, all, _ := parsed(t, night)
	require.Less(t, len(text), 2_000_000)
	require.Equal(t, "Every promise held", heading(all))
	bars, points := 0, 0
	for _, n := range all {
		switch {
		case n.Data == "rect" && strings.HasPrefix(attr(n, "class"), "v"):
			bars++
		case n.Data == "path" && attr(n, "class") == "line calls":
			points = strings.Count(attr(n, "d"), "L") + 1
		}
	}
	require.Equal(t, 3000, bars)
	require.Equal(t, 600, points)
	calls := 0
	for i := range night.Seconds {
		calls += night.Seconds[i].Calls
	}
	require.Contains(t, text, "<b>"+count(calls)+"</b>calls answered")
}

// A promise for which nothing was compared, and a run without a fault, are not praised.
func TestWrite_WhatWasNotJudged(t *testing.T) {
	for title, r := range map[string]*Result{
		"Nothing was judged":                                       {},
		"No promise broken, and 1 of 2 not judged":                 {Invariants: []Invariant{{Name: "kept", Checked: 3}, {Name: "true"}}, Faults: []Fault{{Kind: "node killed", Bites: 1}}},
		"Every promise held, and no fault was seen to do anything": {Invariants: []Invariant{{Name: "kept", Checked: 3}}, Faults: []Fault{{Kind: "node killed"}}, Hazards: []Hazard{{Number: 7}}},
	} {
		text, all, byID := parsed(t, r)
		require.Equal(t, title, heading(all))
		require.NotContains(t, text, "NaN")
		require.NotContains(t, text, "Inf")
		gaps := textOf(byID["gaps"].NextSibling.NextSibling)
		require.Equal(t, len(r.Hazards) > 0, strings.Contains(gaps, "H7"), gaps)
		require.Equal(t, len(r.Invariants) == 2, strings.Contains(gaps, "true"), gaps)
	}
}

// The page counts what it leaves out.
func TestWrite_SaysWhatIsLeftOut(t *testing.T) {
	r := broken(sample(time.Minute, 6))
	for range 200 {
		r.Invariants[1].Violations = append(r.Invariants[1].Violations, Violation{"default/k", strings.Repeat("x", 3000)})
		r.Histories[0].Lines = append(r.Histories[0].Lines, r.Histories[0].Lines...)[:min(350, 2*len(r.Histories[0].Lines))]
	}
	text, _, byID := parsed(t, r)
	require.Contains(t, textOf(byID["violations-1"]), "150 more are left out here")
	require.Contains(t, textOf(byID["history-1"]), "50 more lines are left out here")
	require.Contains(t, text, "… (1,000 bytes more)")
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWrite_SaysThatItFailed(t *testing.T) {
	require.ErrorContains(t, Write(failing{}, &Result{}), "no space left on device")
}
