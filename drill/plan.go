package drill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/crashpoint"
)

// Victim names the processes that are killed in a run.
type Victim string

// The victims.
const (
	VictimNone    Victim = ""
	VictimCaller  Victim = "caller"
	VictimFlightd Victim = "flightd"
	VictimBoth    Victim = "both"
)

// Fault is the CRM's misbehaviour at the first ticket request of a run.
type Fault string

// The faults.
const (
	FaultNone           Fault = ""
	FaultDrop           Fault = "drop"        // creates the ticket and closes the connection without an answer
	FaultSlow           Fault = "slow"        // creates the ticket and answers after the attempt's time-out
	FaultErrorAndTicket Fault = "503-created" // creates the ticket and answers 503
	FaultErrorNoTicket  Fault = "503"         // creates no ticket and answers 503
)

// NoRecovery is the value of Run.Recovery in runs without flightd.
const NoRecovery = "none"

// Run is one intent under one recovery policy, with one victim or one fault.
type Run struct {
	Recovery string           `json:"recovery"` // resend, verify, hold or none
	Victim   Victim           `json:"victim,omitempty"`
	Point    crashpoint.Point `json:"point,omitempty"`
	Fault    Fault            `json:"fault,omitempty"`
}

// ID returns the name of the run, which is the id in its key and the external id of its tickets.
func (r Run) ID() string {
	var parts []string
	for _, w := range []string{string(r.Victim), string(r.Point), string(r.Fault), r.Recovery} {
		if w != "" {
			parts = append(parts, w)
		}
	}
	return strings.Join(parts, "-")
}

// Scenario describes the run's disturbance in words.
func (r Run) Scenario() string {
	switch r.Fault {
	case FaultDrop:
		return "CRM creates the ticket, drops the connection"
	case FaultSlow:
		return "CRM creates the ticket, answers too late"
	case FaultErrorAndTicket:
		return "CRM creates the ticket, answers 503"
	case FaultErrorNoTicket:
		return "CRM creates no ticket, answers 503"
	}
	if r.Victim == VictimBoth {
		return fmt.Sprintf("kill -9 caller and flightd at %s", r.Point)
	}
	return fmt.Sprintf("kill -9 %s at %s", r.Victim, r.Point)
}

// killsFlightd reports whether flightd is killed in the run.
func (r Run) killsFlightd() bool { return r.Victim == VictimFlightd || r.Victim == VictimBoth }

// flightdCrashes reports whether flightd kills itself at a point in its own code. Otherwise the drill kills it while
// the caller pauses at a point in the caller's code.
func (r Run) flightdCrashes() bool {
	switch r.Point {
	case crashpoint.BeforeOpen, crashpoint.DuringOpen, crashpoint.AfterOpen:
		return r.killsFlightd()
	case crashpoint.BeforeReport, crashpoint.AfterReport, crashpoint.BeforeRelease:
		return r.Victim == VictimFlightd
	}
	return false
}

func faults() []Fault { return []Fault{FaultDrop, FaultSlow, FaultErrorAndTicket, FaultErrorNoTicket} }

func recoveries() []string {
	return []string{flight.RecoveryResend.String(), flight.RecoveryVerify.String(), flight.RecoveryHold.String()}
}

// Plan returns all runs: every victim at every point, and every fault, under every recovery.
func Plan() []Run {
	var runs []Run
	for _, victim := range []Victim{VictimCaller, VictimFlightd, VictimBoth} {
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

// PlanWithoutFlightd returns the runs of the control: the crashes and faults that exist without flightd.
func PlanWithoutFlightd() []Run {
	var runs []Run
	for _, point := range []crashpoint.Point{crashpoint.BeforeSend, crashpoint.AfterEffect, crashpoint.BeforeReport} {
		runs = append(runs, Run{Recovery: NoRecovery, Victim: VictimCaller, Point: point})
	}
	for _, fault := range faults() {
		runs = append(runs, Run{Recovery: NoRecovery, Fault: fault})
	}
	return runs
}

// dimension returns the value of a run by which Select can select it.
type dimension func(Run) string

func dimensions() []dimension {
	return []dimension{
		func(r Run) string { return string(r.Victim) },
		func(r Run) string { return string(r.Point) + string(r.Fault) },
		func(r Run) string { return r.Recovery },
	}
}

// values returns the distinct values of the runs in this dimension.
func (d dimension) values(runs []Run) []string {
	var values []string
	for _, r := range runs {
		if w := d(r); w != "" && !slices.Contains(values, w) {
			values = append(values, w)
		}
	}
	return values
}

// Select returns the runs that match the words. The dimensions are victim, point or fault, and recovery. A run matches
// if in each dimension with a word its value is one of the words. Without words all runs match. Select returns an error
// for an unknown word, or if no run matches.
func Select(runs []Run, words []string) ([]Run, error) {
	selected := runs
	var known []string
	for _, d := range dimensions() {
		values := d.values(runs)
		known = append(known, values...)
		named := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !slices.Contains(values, w) })
		if len(named) > 0 {
			selected = slices.DeleteFunc(slices.Clone(selected), func(r Run) bool { return !slices.Contains(named, d(r)) })
		}
	}
	for _, w := range words {
		if !slices.Contains(known, w) {
			return nil, fmt.Errorf("unknown name %q; allowed: %s", w, strings.Join(known, ", "))
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no run matches %s", strings.Join(words, ", "))
	}
	return selected, nil
}
