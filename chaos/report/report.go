package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

//go:embed page.html page.css
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{"count": count, "took": took, "source": source, "cut": cut, "along": along,
	"more": func(n, most int) int { return max(0, n-most) }}).ParseFS(files, "page.html", "page.css"))

// The limits of the recovery after the last fault of a round.
const (
	LeaderLimit = 3 * time.Second
	FlightLimit = 5 * time.Second
)

// Write writes a result as one HTML page, which loads nothing from elsewhere. When the page cannot be rendered, nothing is written.
func Write(w io.Writer, r *Result) error {
	var out bytes.Buffer
	if err := page.Execute(&out, newView(r)); err != nil {
		return fmt.Errorf("report: render the run with seed %d: %w", r.Seed, err)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// view is a result as the page shows it.
type view struct {
	*Result
	*chart
	State, Title string // held, broken, or open: not everything was judged
	Compared     int
	Bit, Kinds   int // faults that were seen to do something, and their kinds
	Total        Second
	Recoveries   []recovery
	Gaps         []string
}

// recovery is one measure of all rounds.
type recovery struct {
	Name             string
	Limit            time.Duration // 0: there is none
	Median, P90, Max time.Duration
	Late             int
	Ticks            string  // one for each round, as a path in 1000 by 10
	LimitAt          float64 // in percent
}

func newView(r *Result) *view {
	v := &view{Result: r, chart: newChart(r), State: "held", Title: "Every promise held"}
	v.Bit, v.Kinds = r.Bitten()
	var idle, never, unseen []string
	broken := 0
	for i := range r.Invariants {
		switch p := &r.Invariants[i]; {
		case len(p.Violations) > 0:
			broken++
		case p.Checked == 0:
			idle = append(idle, p.Name)
		}
		v.Compared += r.Invariants[i].Checked
	}
	switch all := len(r.Invariants); {
	case broken > 0:
		v.State, v.Title = "broken", fmt.Sprintf("%d of %d promises broken", broken, all)
	case len(idle) == all:
		v.State, v.Title = "open", "Nothing was judged"
	case len(idle) > 0:
		v.State, v.Title = "open", fmt.Sprintf("No promise broken, and %d of %d not judged", len(idle), all)
	case v.Bit == 0:
		v.State, v.Title = "open", "Every promise held, and no fault was seen to do anything"
	}
	for i := range r.Seconds {
		s := &r.Seconds[i]
		v.Total.Calls, v.Total.Effects = v.Total.Calls+s.Calls, v.Total.Effects+s.Effects
		v.Total.Replays, v.Total.Errors = v.Total.Replays+s.Replays, v.Total.Errors+s.Errors
	}
	if len(r.Rounds) > 0 {
		v.measure("a node leads", LeaderLimit, func(r *Round) time.Duration { return r.Leader })
		v.measure("first new flight", FlightLimit, func(r *Round) time.Duration { return r.Flight })
		v.measure("every node takes part", 0, func(r *Round) time.Duration { return r.Whole })
	}
	for i := range r.Hazards {
		if r.Hazards[i].Met == 0 {
			never = append(never, fmt.Sprint("H", r.Hazards[i].Number))
		}
	}
	for _, l := range v.Lanes {
		if l.Bit == 0 {
			unseen = append(unseen, l.Name)
		}
	}
	for _, gap := range []struct {
		text  string
		names []string
	}{{"Promises for which nothing was compared", idle}, {"Hazards that were never met", never}, {"Kinds of faults that were never seen to do anything", unseen}} {
		if len(gap.names) > 0 {
			v.Gaps = append(v.Gaps, fmt.Sprintf("%s: %s.", gap.text, strings.Join(gap.names, ", ")))
		}
	}
	v.Gaps = append(append(v.Gaps, r.NotCovered...), "Orders of events that this run did not have. A run finds broken promises; it never proves that there are none.")
	return v
}

// measure adds one measure of the rounds.
func (v *view) measure(name string, limit time.Duration, of func(r *Round) time.Duration) {
	c, all := recovery{Name: name, Limit: limit}, make([]time.Duration, len(v.Rounds))
	for i := range v.Rounds {
		if all[i] = of(&v.Rounds[i]); limit > 0 && all[i] > limit {
			c.Late++
		}
	}
	slices.Sort(all)
	c.Median, c.P90, c.Max = all[(len(all)-1)/2], all[(len(all)*9+9)/10-1], all[len(all)-1]
	right := max(c.Max, limit, time.Millisecond) * 11 / 10
	c.LimitAt = round2(100 * float64(limit) / float64(right))
	for _, d := range all {
		c.Ticks += fmt.Sprintf("M%.4g 0v10", 1000*float64(d)/float64(right))
	}
	v.Recoveries = append(v.Recoveries, c)
}

// Target returns the id of the place that tells more about a key: its history, or a round; "": there is none.
func (v *view) Target(key string) string {
	round := 0
	if i := slices.IndexFunc(v.Histories, func(h History) bool { return h.Key == key }); i >= 0 {
		return fmt.Sprint("history-", i+1)
	} else if _, _ = fmt.Sscanf(key, "round %d", &round); round > 0 && round <= len(v.Rounds) {
		return fmt.Sprint("round-", round)
	}
	return ""
}

// At writes a moment as the time since the run began.
func (v *view) At(t time.Time) string {
	return time.Time{}.Add(max(0, t.Sub(v.Began))).Format("15:04:05.0")
}

// source returns which of four sources of a history a line has.
func source(name string) string {
	if first, _, _ := strings.Cut(name, " "); first == "provider" || first == "caller" || first == "fault" {
		return first
	}
	return "node"
}

// along returns where a line of a history is between the first and the last thing that happened, in percent; flightd explains it later.
func along(lines []Line, at time.Time) float64 {
	first, last := lines[0].At, lines[0].At
	for i := len(lines) - 1; i > 0 && !last.After(first); i-- {
		if lines[i].Source != "flightd why" {
			last = lines[i].At
		}
	}
	return round2(1 + 98*min(1, max(0, float64(at.Sub(first))/float64(max(1, last.Sub(first))))))
}

// cut shortens a text that is longer than most bytes, and says by how much.
func cut(most int, text string) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s … (%s bytes more)", strings.ToValidUTF8(text[:most], ""), count(len(text)-most))
}

// count writes a number with commas between thousands.
func count(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// took writes a duration with three digits.
func took(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 && unit < time.Second {
		unit *= 10
	}
	return strings.Replace(d.Round(unit).String(), "m0s", "m", 1)
}

// Number returns the number of the round at an index.
func (v *view) Number(index int) int { return index + 1 }
