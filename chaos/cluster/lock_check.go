//go:build linux

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const lockHeader = `| guard | acknowledged updates | lost | effects twice | beyond the promise | overlaps flagged | overlaps not flagged |
| --- | --- | --- | --- | --- | --- | --- |
`

func isMutex(guard string) bool { return strings.HasPrefix(guard, guardMutex) }

// lockRow is what became of the updates under one guard.
type lockRow struct {
	guard                              string
	acknowledged, lost, effects, twice int
	beyond                             int // effects that the policy does not allow
	flagged, unflagged                 int // updates that acted twice, or wrote over a value that they had not read
	flags                              int // flights that are flagged
	doubts                             int // that a person decided
}

// judgeLocks compares the registers and the provider's books with what was acknowledged and with the flags of the flights. The first two
// rows are the mutex's, which promises nothing.
//
// Under hold and verify, flightd may let a request act late that left between the last look at the trust and the network, if the flight is
// flagged then. That moment is short, and a gate that does not look at all would show the same: every lost update and every second effect
// is a violation here, flagged or not.
func judgeLocks(writes []write, values map[string]register, ends []JobEnd, readings []Reading) (rows []lockRow, found []Violation) {
	acted, over, flagged := make(map[string]int), make(map[string]string), make(map[string]bool)
	effects := make(map[string][]Effect) // by guard
	for i := range writes {
		w := &writes[i]
		guard := recoveryOf(w.Key)
		if effects[guard] = append(effects[guard], w.Effect); !w.Repeat {
			acted[w.Key]++
			over[w.Key] = cmp.Or(over[w.Key], w.over)
		}
	}
	for i := range readings {
		flagged[readings[i].Key] = readings[i].Overlap
	}
	slices.SortFunc(ends, func(x, y JobEnd) int { return cmp.Compare(x.Key, y.Key) }) // in the order of lanes
	for _, guard := range []string{guardMutex, guardLook, recoveryHold, recoveryResend, recoveryVerify} {
		row := lockRow{guard: guard}
		var jobs []Job
		for i := range ends {
			end := &ends[i]
			lane, count := registerOf(end.Key), acted[end.Key]
			if recoveryOf(end.Key) != guard {
				continue
			}
			jobs = append(jobs, Job{Key: end.Key, Lane: lane, Limit: 1})
			row.effects, row.doubts = row.effects+count, row.doubts+end.Doubts
			row.flags, row.twice = row.flags+boolInt(flagged[end.Key]), row.twice+boolInt(count > 1)
			row.acknowledged += boolInt(end.Body != "")
			if end.Body != "" && !slices.Contains(values[lane].Keys, end.Key) {
				if row.lost++; !isMutex(guard) {
					found = append(found, Violation{ruleLost, end.Key, "it was acknowledged, and is not in its register"})
				}
			}
			if overlaps := count > 1 || over[end.Key] != ""; overlaps && (flagged[end.Key] || flagged[over[end.Key]]) {
				row.flagged++
			} else if overlaps {
				if row.unflagged++; !isMutex(guard) {
					found = append(found, Violation{ruleOverlap, end.Key, fmt.Sprintf("it acted %d times, has overwritten %q, and is not flagged", count, over[end.Key])})
				}
			}
			if !isMutex(guard) && count > 1 && (guard == recoveryResend || !flagged[end.Key]) {
				row.beyond += count - 1
			}
		}
		if rows = append(rows, row); !isMutex(guard) {
			found = append(found, CheckJobs(jobs, effects[guard], ends, false)...)
		}
	}
	return rows, found
}
