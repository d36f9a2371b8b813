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
		verificationConfigurations(), epochsConfigurations(), restoresConfigurations(), reconcilingConfigurations(), jobsConfigurations(),
	} {
		all = append(all, table...)
	}
	return all
}

// scope has the fields that the configurations of most machines share.
type scope struct {
	hold     bool // policy hold; else resend
	live     bool // check L1
	noDeaths bool
	frozen   bool // a machine may stop and go on: it trusts a session that has ended
}

func (s *scope) setPolicy(policy int) { s.hold = policy == hold }

// The policies under which a row is explored, as a set.
const (
	hold = 1 << iota
	resend
	noPolicy // the machine has no choice of a policy
	both     = hold | resend
)

// row is one line of the table of a machine with configurations C.
type row[C any] struct {
	name   string
	expect Expectation
	under  int // policies
	short  int // policies under which make test explores it
	change func(*C)
}

// table returns the configurations of rows, each a change to base.
func table[C any, P interface {
	*C
	setPolicy(int)
	run(Limits) Result
}](base C, rows []row[C]) []Configuration {
	var all []Configuration
	for _, row := range rows {
		for _, policy := range []int{hold, resend, noPolicy} {
			if row.under&policy == 0 {
				continue
			}
			g := base
			P(&g).setPolicy(policy)
			row.change(&g)
			name := row.name + map[int]string{hold: ", hold", resend: ", resend"}[policy]
			all = append(all, Configuration{Name: name, Expect: row.expect, Short: row.short&policy != 0, run: P(&g).run})
		}
	}
	return all
}
