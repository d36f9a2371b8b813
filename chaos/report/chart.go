package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	maxPoints  = 600 // of a line of the chart
	maxVictims = 8   // with colours of their own
)

// chart shows the time of a run from left to right. Places and widths are in percent of it, paths in 1000 by 100.
type chart struct {
	Point   int     // seconds that one point of a line stands for
	First   float64 // where the first one is
	Panels  []row
	Times   []mark // of the axis
	Bands   string // the rounds, as a path
	Heals   []mark
	Lanes   []row    // one for each kind of fault
	Victims []string // the Nth has the class vN

	began time.Time
	span  time.Duration
}

// row is a diagram, with marks for the horizontal lines of its grid, or a lane of marks.
type row struct {
	Name, Unit string
	Lines      []line
	Marks      []mark
	Bit        int // how many of the faults of a lane were seen to do something
}

type line struct{ Name, Path string }

type mark struct {
	At, Width   float64
	Class, Text string
}

func newChart(r *Result) *chart {
	seconds := 0
	for i := range r.Seconds {
		seconds = max(seconds, r.Seconds[i].At+1)
	}
	c := &chart{Point: max(1, (seconds+maxPoints-1)/maxPoints), began: r.Began, span: max(r.Ended.Sub(r.Began), time.Duration(max(1, seconds))*time.Second)}
	step, format := time.Second, "4:05" // of the axis, which has seven marks at most
	for _, s := range []time.Duration{5, 10, 30, 60, 120, 300, 600, 1800, 3600, 2 * 3600, 6 * 3600, 24 * 3600} {
		if c.span > 7*step {
			step = s * time.Second
		}
	}
	if c.span > time.Hour {
		format = "15:04 h"
	}
	for at := time.Duration(0); at < c.span; at += step {
		c.Times = append(c.Times, mark{At: c.x(c.began.Add(at)), Text: time.Time{}.Add(at).Format(format)})
	}
	for i := range r.Rounds {
		round := &r.Rounds[i]
		from, to := c.x(round.Began), c.x(round.Healed)
		c.Bands += fmt.Sprintf("M%.5g 0h%.4gv100H%[1]gz", 10*from, 10*(to-from))
		heal := mark{At: to, Class: "heal", Text: fmt.Sprintf("round %d healed: a node led after %s, first new flight after %s, whole after %s", i+1, took(round.Leader), took(round.Flight), took(round.Whole))}
		if round.Leader > LeaderLimit || round.Flight > FlightLimit {
			heal.Class = "heal late"
		}
		c.Heals = append(c.Heals, heal)
	}
	c.draw(r.Seconds, seconds)
	c.faults(r.Faults)
	return c
}

// draw draws what happened in the seconds of the run. A point has the means of its seconds, and their worst p99.
func (c *chart) draw(all []Second, seconds int) {
	points := make([]Second, (seconds+c.Point-1)/c.Point)
	for i := range all {
		s, p := &all[i], &points[all[i].At/c.Point]
		if n := float64(p.Calls + s.Calls); n > 0 {
			p.P50 = time.Duration((float64(p.P50)*float64(p.Calls) + float64(s.P50)*float64(s.Calls)) / n)
		}
		p.Calls, p.Effects, p.Errors, p.P99 = p.Calls+s.Calls, p.Effects+s.Effects, p.Errors+s.Errors, max(p.P99, s.P99)
	}
	c.First = 500 * float64(c.Point) * float64(time.Second) / float64(c.span)
	for _, d := range []struct {
		name, unit string
		lines      []string
		of         func(s *Second, line int) float64
	}{
		{"Throughput", "per second", []string{"calls", "effects"}, func(s *Second, line int) float64 { return float64([]int{s.Calls, s.Effects}[line]) }},
		{"Latency", "log scale", []string{"p99", "p50"}, func(s *Second, line int) float64 { return math.Log10(float64([]time.Duration{s.P99, s.P50}[line])) }},
		{"Errors", "per second", []string{"errors"}, func(s *Second, _ int) float64 { return float64(s.Errors) }},
	} {
		p, isLog := row{Name: d.name, Unit: d.unit}, d.name == "Latency"
		values, low, high, step := make([][]float64, len(d.lines)), 0.0, 1.0, 1.0
		if isLog {
			low, high = 6, 9 // a millisecond and a second, at least
		}
		for n := range d.lines {
			for i := range points {
				value := d.of(&points[i], n)
				if !isLog {
					value /= float64(min(c.Point, seconds-i*c.Point))
				}
				if values[n] = append(values[n], value); !math.IsInf(value, -1) { // else nothing was answered
					low, high = min(low, math.Floor(value)), max(high, value)
				}
			}
		}
		if !isLog {
			if step = math.Pow(10, math.Floor(math.Log10(high))); high > 2.5*step {
				step *= 2
			}
		}
		y := func(value float64) float64 { return round2(100 - 100*(value-low)/(1.2*(high-low))) }
		for at := low + step; at <= high; at += step {
			text := count(int(at))
			if isLog {
				text = took(time.Duration(math.Pow(10, at)))
			}
			p.Marks = append(p.Marks, mark{At: y(at), Text: text})
		}
		for n, name := range d.lines {
			l, pen := line{Name: name}, "M"
			for i, value := range values[n] {
				if math.IsInf(value, -1) {
					pen = "M"
					continue
				}
				if l.Path += fmt.Sprintf("%s%.1f %.1f", pen, float64(2*i+1)*c.First, y(value)); pen == "M" {
					l.Path, pen = l.Path+"h.1", "L" // so that a point alone is seen
				}
			}
			p.Lines = append(p.Lines, l)
		}
		c.Panels = append(c.Panels, p)
	}
}

// faults draws a lane for each kind, and gives the victims that were hit most often their colours.
func (c *chart) faults(all []Fault) {
	hits, kinds := make(map[string]int), make(map[string]*row)
	for i := range all {
		hits[all[i].Victim]++
	}
	c.Victims = slices.SortedFunc(maps.Keys(hits), func(x, y string) int { return 2*(hits[y]-hits[x]) + strings.Compare(x, y) })
	c.Victims = c.Victims[:min(maxVictims, len(c.Victims))]
	slices.Sort(c.Victims)
	for i := range all {
		f := &all[i]
		if kinds[f.Kind] == nil {
			kinds[f.Kind] = &row{Name: f.Kind}
		}
		m := mark{At: c.x(f.Began), Class: fmt.Sprint("v", slices.Index(c.Victims, f.Victim)), Text: fmt.Sprintf("%s of %s: %s", f.Kind, f.Victim, cut(120, f.Bite))}
		m.Width = max(0.25, round2(c.x(f.Healed)-m.At))
		if f.Bites > 0 {
			kinds[f.Kind].Bit++
		} else {
			m.Class += " none"
		}
		kinds[f.Kind].Marks = append(kinds[f.Kind].Marks, m)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		c.Lanes = append(c.Lanes, *kinds[kind])
	}
	if len(hits) > len(c.Victims) {
		c.Victims = append(c.Victims, "others") // theirs is the class v-1
	}
}

// x returns where a moment is.
func (c *chart) x(t time.Time) float64 {
	return round2(100 * min(1, max(0, float64(t.Sub(c.began))/float64(c.span))))
}

func round2(x float64) float64 { return math.Round(100*x) / 100 }
