package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// goodJobs has four jobs of a lane of limit 1 or 2, each of which was performed once, in its order.
func goodJobs(recovery string, limit int) (jobs []Job, effects []Effect, ends []JobEnd) {
	for i, id := range []string{"a", "b", "c", "d"} {
		key := "default/" + recovery + "/" + id
		jobs = append(jobs, Job{Key: key, Lane: "lane", Limit: limit})
		effects = append(effects, Effect{Key: key, IdempotencyKey: id, At: at(float64(i * 10 / limit)), Lasts: 9 * time.Second, Body: `{"of":  "` + id + `"}`})
		ends = append(ends, JobEnd{Key: key, Queued: 1, Body: `{"of":"` + id + `"}`})
	}
	return jobs, effects, ends
}

func TestCheckJobs_Good(t *testing.T) {
	for _, recovery := range []string{recoveryHold, recoveryResend, recoveryVerify} {
		for limit := 1; limit <= 2; limit++ {
			jobs, effects, ends := goodJobs(recovery, limit)
			require.Empty(t, CheckJobs(jobs, effects, ends, false))
		}
	}
	jobs, effects, ends := goodJobs(recoveryHold, 1)
	ends[2].Doubts, ends[1].Queued = 2, 0
	require.Empty(t, CheckJobs(jobs, effects, ends, false), "an answer that the job is new may be lost, and a person may decide")
	jobs, effects, ends = goodJobs(recoveryResend, 1)
	effects = append(effects, Effect{Key: jobs[0].Key, IdempotencyKey: "a", At: at(20), Lasts: time.Second, Repeat: true, Body: effects[0].Body})
	require.Empty(t, CheckJobs(jobs, effects, ends, false), "a repeat that the provider recognises is no effect")
}

// Each bad history breaks one rule.
func TestCheckJobs_Bad(t *testing.T) {
	for name, row := range map[string]struct {
		recovery, rule string
		spoil          func(effects *[]Effect, ends *[]JobEnd)
	}{
		"a second effect":     {recoveryHold, ruleOneEffect, func(e *[]Effect, _ *[]JobEnd) { *e = append(*e, (*e)[3]) }},
		"a second look-up":    {recoveryVerify, ruleOneEffect, func(e *[]Effect, _ *[]JobEnd) { *e = append(*e, (*e)[3]) }},
		"another idempotency": {recoveryResend, ruleSameKey, func(e *[]Effect, _ *[]JobEnd) { *e = append(*e, Effect{Key: (*e)[3].Key, At: at(50), Repeat: true}) }},
		"no receipt":          {recoveryHold, ruleNotBlocked, func(_ *[]Effect, ends *[]JobEnd) { *ends = (*ends)[1:] }},
		"a failure":           {recoveryHold, ruleNotBlocked, func(_ *[]Effect, ends *[]JobEnd) { (*ends)[1] = JobEnd{Key: (*ends)[1].Key, Err: "failed"} }},
		"a foreign receipt":   {recoveryHold, ruleTrue, func(_ *[]Effect, ends *[]JobEnd) { (*ends)[1].Body = (*ends)[0].Body }},
		"a doubt":             {recoveryVerify, ruleKeeps, func(_ *[]Effect, ends *[]JobEnd) { (*ends)[1].Doubts = 1 }},
		"new twice":           {recoveryHold, ruleTrue, func(_ *[]Effect, ends *[]JobEnd) { (*ends)[1].Queued = 2 }},
		"an order by arrival": {recoveryHold, ruleLane, func(e *[]Effect, _ *[]JobEnd) { (*e)[1].At, (*e)[2].At = (*e)[2].At, (*e)[1].At }},
		"two at once":         {recoveryHold, ruleLane, func(e *[]Effect, _ *[]JobEnd) { (*e)[1].Lasts = 11 * time.Second }},
		"a late effect":       {recoveryHold, ruleLane, func(e *[]Effect, _ *[]JobEnd) { (*e)[0].At = at(50) }},
	} {
		t.Run(name, func(t *testing.T) {
			jobs, effects, ends := goodJobs(row.recovery, 1)
			row.spoil(&effects, &ends)
			found := CheckJobs(jobs, effects, ends, false)
			require.NotEmpty(t, found)
			require.Equal(t, row.rule, found[0].Rule, "%v", found)
		})
	}
	jobs, effects, ends := goodJobs(recoveryHold, 2)
	effects[0].Lasts = 11 * time.Second // three at once
	require.Equal(t, ruleLane, CheckJobs(jobs, effects, ends, false)[0].Rule)
}
