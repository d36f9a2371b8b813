package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Job is a job for workers. Its action is its recovery.
type Job struct {
	Key   string
	Lane  string        // "": it stands in none
	Limit int           // of the lane
	Lasts time.Duration // of the effect
	// TimeOut is that of each attempt; 0: none. Workers in Go do not notice that it is over.
	TimeOut time.Duration
}

// JobEnd is what became of a job, as those who submitted it were told.
type JobEnd struct {
	Key    string
	Queued int       // submissions that were answered that the job is new
	Lost   time.Time // of jobsAtWork: when the first attempt was declared lost
	Doubts int       // how often a person had to decide
	Body   string    // of the receipt, compact
	Err    string    // there is no receipt
}

// CheckJobs judges jobs, which were submitted in the order of their lanes. Workers and nodes may have died and stood still. A
// person has decided each doubt by the provider's books. mayEnd says that the provider's window, or the time for look-ups, may have passed.
func CheckJobs(jobs []Job, effects []Effect, ends []JobEnd, mayEnd bool) (found []Violation) {
	effectsOf, endOf, lanes := byKey(effects), make(map[string]JobEnd), make(map[string][]*account)
	for _, end := range ends {
		endOf[end.Key] = end
	}
	for i := range jobs {
		j := &jobs[i]
		a, end := &account{key: j.Key, effects: effectsOf[j.Key]}, endOf[j.Key]
		say := func(rule, format string, args ...any) {
			found = append(found, Violation{rule, j.Key, fmt.Sprintf(format, args...)})
		}
		a.checkEffects(say)
		switch {
		case end.Body == "":
			say(ruleNotBlocked, "it has no receipt: %q", end.Err)
		case !slices.ContainsFunc(a.effects, func(e Effect) bool { return compact(e.Body) == end.Body }):
			say(ruleTrue, "the receipt %q is no answer of the provider", end.Body)
		case end.Queued > 1:
			say(ruleTrue, "%d submissions were told that it is new", end.Queued)
		case end.Doubts > 0 && recoveryOf(j.Key) != recoveryHold && !mayEnd:
			say(ruleKeeps, "a person had to decide")
		}
		if j.Lane != "" {
			a.checkPlace(j, lanes[j.Lane], say)
			lanes[j.Lane] = append(lanes[j.Lane], a)
		}
	}
	return found
}

// checkPlace compares the effects of a job with those of the jobs that stood before it in its lane: when the job's effect began,
// fewer than the limit of them were not over.
func (a *account) checkPlace(j *Job, before []*account, say sayFunc) {
	if len(a.effects) == 0 {
		return
	}
	began := a.effects[0].At // they are sorted
	var live []string
	for _, other := range before {
		if slices.ContainsFunc(other.effects, func(e Effect) bool { return !e.Repeat && e.At.Add(e.Lasts).After(began) }) {
			live = append(live, other.key)
		}
	}
	if len(live) >= j.Limit {
		say(ruleLane, "it began at %s, when %v were not over; the limit is %d", clockText(began), live, j.Limit)
	}
}

// compact returns JSON as the answers of jobs have it, without spaces.
func compact(body string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(body)) != nil {
		return body
	}
	return b.String()
}
