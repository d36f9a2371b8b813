//go:build linux

package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The judge counts lost updates, second effects and overlaps under each guard, and each is a violation if flightd has let it happen.
func TestJudgeLocks(t *testing.T) {
	for _, c := range []struct {
		guard                string
		lost, twice, flagged bool
		overlaps, beyond     int
		rules                []string
	}{
		{guard: guardMutex, lost: true},
		{guard: guardMutex, twice: true, overlaps: 1},
		{guard: recoveryHold},
		{guard: recoveryHold, lost: true, rules: []string{ruleLost}},
		{guard: recoveryHold, twice: true, flagged: true, rules: []string{ruleOneEffect}},
		{guard: recoveryVerify, twice: true, flagged: true, lost: true, rules: []string{ruleLost, ruleOneEffect}},
		{guard: recoveryVerify, twice: true, overlaps: 1, beyond: 1, rules: []string{ruleOverlap, ruleOneEffect}},
		{guard: recoveryResend, twice: true, flagged: true, beyond: 1, rules: []string{ruleOneEffect}},
		{guard: recoveryResend, flagged: true, lost: true, rules: []string{ruleLost}},
	} {
		key, at := "default/"+c.guard+"/job-0-000000", time.Now()
		writes := []write{{Effect: Effect{Key: key, At: at, Body: "1"}}}
		if c.twice {
			writes = append(writes, write{Effect: Effect{Key: key, At: at.Add(5 * time.Second), Body: "2"}, over: key})
		}
		values := map[string]register{registerOf(key): {Keys: []string{key}}}
		if c.lost {
			values = nil
		}
		rows, found := judgeLocks(writes, values, []JobEnd{{Key: key, Queued: 1, Body: "1"}}, []Reading{{Key: key, Overlap: c.flagged}})
		var rules []string
		for _, v := range found {
			rules = append(rules, v.Rule)
		}
		require.Equal(t, c.rules, rules, "%+v", c)
		for _, r := range rows {
			if r.guard == c.guard {
				require.Equal(t, []int{1, boolInt(c.lost), boolInt(c.twice), c.beyond, boolInt(c.twice && c.flagged), c.overlaps},
					[]int{r.acknowledged, r.lost, r.twice, r.beyond, r.flagged, r.unflagged}, "%+v", c)
			}
		}
	}
}
