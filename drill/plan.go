package drill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/crashpoint"
)

// Victim is who is killed in a run.
type Victim string

// The victims.
const (
	Nobody  Victim = ""
	Caller  Victim = "caller"
	Flightd Victim = "flightd"
	Both    Victim = "both"
)

// Fault is what the CRM does to the first request of a run that wants a ticket.
type Fault string

// The faults.
const (
	NoFault        Fault = ""
	Drop           Fault = "drop"        // it makes the ticket and closes the connection without a word
	Slow           Fault = "slow"        // it makes the ticket and answers after the attempt's time-out
	ErrorAndTicket Fault = "503-created" // it makes the ticket and answers 503
	ErrorNoTicket  Fault = "503"         // it makes none and answers 503
)

// NoRecovery is the recovery of runs without flightd: there is none.
const NoRecovery = "none"

// Run is one intent, one mishap and one recovery policy.
type Run struct {
	Recovery string           `json:"recovery"` // resend, verify, hold or none
	Victim   Victim           `json:"victim,omitempty"`
	Point    crashpoint.Point `json:"point,omitempty"`
	Fault    Fault            `json:"fault,omitempty"`
}

// ID names the run; it is the id in its key and the external id of its tickets.
func (r Run) ID() string {
	var words []string
	for _, w := range []string{string(r.Victim), string(r.Point), string(r.Fault), r.Recovery} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, "-")
}

// Mishap says what is done in the run.
func (r Run) Mishap() string {
	switch r.Fault {
	case Drop:
		return "CRM makes the ticket, drops the connection"
	case Slow:
		return "CRM makes the ticket, answers too late"
	case ErrorAndTicket:
		return "CRM makes the ticket, answers 503"
	case ErrorNoTicket:
		return "CRM makes none, answers 503"
	}
	if r.Victim == Both {
		return fmt.Sprintf("kill -9 caller and flightd at %s", r.Point)
	}
	return fmt.Sprintf("kill -9 %s at %s", r.Victim, r.Point)
}

// flightdDies reports whether flightd is killed in the run.
func (r Run) flightdDies() bool { return r.Victim == Flightd || r.Victim == Both }

// flightdsOwn reports whether flightd dies by itself, at a point that it passes, and is not killed while the caller
// stands at one of its own.
func (r Run) flightdsOwn() bool {
	switch r.Point {
	case crashpoint.BeforeOpen, crashpoint.DuringOpen, crashpoint.AfterOpen:
		return r.flightdDies()
	case crashpoint.BeforeReport, crashpoint.AfterReport, crashpoint.BeforeRelease:
		return r.Victim == Flightd
	}
	return false
}

func faults() []Fault { return []Fault{Drop, Slow, ErrorAndTicket, ErrorNoTicket} }

func recoveries() []string {
	return []string{flight.Resend.String(), flight.Verify.String(), flight.Hold.String()}
}

// Plan gives all runs: every victim at every point, and every fault, under every recovery.
func Plan() []Run {
	var runs []Run
	for _, victim := range []Victim{Caller, Flightd, Both} {
		for _, point := range crashpoint.All() {
			for _, recovery := range recoveries() {
				runs = append(runs, Run{Recovery: recovery, Victim: victim, Point: point})
			}
		}
	}
	for _, fault := range faults() {
		for _, recovery := range recoveries() {
			runs = append(runs, Run{Recovery: recovery, Fault: fault})
		}
	}
	return runs
}

// PlanWithout gives the runs of the control: the mishaps that there are without flightd.
func PlanWithout() []Run {
	var runs []Run
	for _, point := range []crashpoint.Point{crashpoint.BeforeSend, crashpoint.AfterEffect, crashpoint.BeforeReport} {
		runs = append(runs, Run{Recovery: NoRecovery, Victim: Caller, Point: point})
	}
	for _, fault := range faults() {
		runs = append(runs, Run{Recovery: NoRecovery, Fault: fault})
	}
	return runs
}

// kind is one thing that words can select by.
type kind func(Run) string

func kinds() []kind {
	return []kind{
		func(r Run) string { return string(r.Victim) },
		func(r Run) string { return string(r.Point) + string(r.Fault) },
		func(r Run) string { return r.Recovery },
	}
}

// words are all that select one of the runs by this kind, each once.
func (k kind) words(runs []Run) []string {
	var words []string
	for _, r := range runs {
		if w := k(r); w != "" && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	return words
}

// Select keeps the runs that have one of the words of each kind that is named: victims, points and faults, recoveries.
// No word keeps all. The error names a word that is none.
func Select(runs []Run, words []string) ([]Run, error) {
	selected := runs
	var known []string
	for _, k := range kinds() {
		of := k.words(runs)
		known = append(known, of...)
		named := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !slices.Contains(of, w) })
		if len(named) > 0 {
			selected = slices.DeleteFunc(slices.Clone(selected), func(r Run) bool { return !slices.Contains(named, k(r)) })
		}
	}
	for _, w := range words {
		if !slices.Contains(known, w) {
			return nil, fmt.Errorf("%q selects nothing; the words are %s", w, strings.Join(known, ", "))
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no run is all of %s", strings.Join(words, ", "))
	}
	return selected, nil
}
