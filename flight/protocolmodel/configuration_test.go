package protocolmodel

import "strings"

// Expectation is the required result of a configuration. A control that is not found is an error of the model.
type Expectation uint8

const (
	Holds    Expectation = iota // every property that is checked holds
	Violates                    // a safety property is violated
	Blocks                      // property L1 is violated: stuck states, or a fair cycle
)

// Configuration is a model with its bounds and its required result.
type Configuration struct {
	Name   string // a letter and a number, then words
	Expect Expectation
	Short  bool // explored in make test (briefly, if it holds) and make long as well as in make explore

	run func(Limits) Result
}

// ID returns the letter and the number of a configuration.
func (c Configuration) ID() string {
	id, _, _ := strings.Cut(c.Name, " ")
	return id
}

// Run explores a configuration.
func (c Configuration) Run(limits Limits) Result { return c.run(limits) }

// Failure returns the difference between a result and the required one, or "". A control must be found; any other
// configuration must pass as far as it was explored.
func (c Configuration) Failure(r Result) string {
	switch c.Expect {
	case Violates:
		if r.Violation == "" {
			return "the control was not found: no safety property is violated"
		}
	case Blocks:
		if !r.Blocked() {
			return "the control was not found: property L1 was not refuted"
		}
	default:
		if r.Violation != "" || r.Blocked() {
			return "a property is violated"
		}
	}
	return ""
}

// Configurations returns the whole table.
func Configurations() []Configuration {
	var all []Configuration
	for _, table := range [][]Configuration{
		callersConfigurations(), reportsConfigurations(), endedConfigurations(), claimsConfigurations(),
		verificationConfigurations(), epochsConfigurations(), restoresConfigurations(), reconcilingConfigurations(), jobsConfigurations(), sagasConfigurations(),
	} {
		all = append(all, table...)
	}
	return all
}

func policyName(hold bool) string {
	if hold {
		return "hold"
	}
	return "resend"
}
