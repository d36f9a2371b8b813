package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/ledgerlog"
	"github.com/flightd/flightd/chaos/linear"
	"github.com/flightd/flightd/chaos/report"
)

func TestHazards_AreTheRowsOfTheDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/hazards.md")
	require.NoError(t, err)
	rows := allHazards()
	require.Len(t, rows, 43)
	for i, row := range rows {
		require.Equal(t, i+1, row.number)
		cell := fmt.Sprintf("| H%d | ", row.number)
		if strings.Contains(row.how, "has no such row") {
			require.NotContains(t, string(document), cell)
			continue
		}
		require.Contains(t, string(document), cell+row.text)
		_, line, _ := strings.Cut(string(document), cell)
		line, _, _ = strings.Cut(line, "\n")
		if _, shown, elsewhere := strings.Cut(row.how, "shown by "); elsewhere {
			require.Regexp(t, "`"+shown+"|"+fmt.Sprintf("`TestHazard%02d_", row.number), line)
			require.Contains(t, row.how, "not met here: ")
		} else {
			require.NotNil(t, row.count, "H%d", row.number)
		}
	}
}

func TestHazards_AreCounted(t *testing.T) {
	token := func(number int) string { return fmt.Sprintf("%08x%08x%08x", 1, number, 1) }
	h := &History{
		Effects: []Effect{
			{Key: "default/hold/job-1", FencingToken: token(1), At: at(10), Lasts: 3 * time.Second},
			{Key: "default/hold/job-2", FencingToken: token(1), At: at(10), Lasts: time.Second},
			{Key: "default/hold/job-3", FencingToken: token(1), At: at(10)}, // it was reported after the restart
			{Key: "default/resend/job-4", FencingToken: token(2), At: at(20), IdempotencyKey: "k", Trouble: string(troubleErrors)},
			{Key: "default/resend/job-4", FencingToken: token(1), At: at(21), IdempotencyKey: "k", Repeat: true},
			{Key: "default/trip/1#car.undo", At: at(30)},
			{Key: "default/trip/1#car", At: at(31)},
			{Key: "default/trip/2#car", At: at(29)},
		},
		Calls: []Call{{Key: "default/hold/load-shared-1", Source: "joined", Began: at(40), Ended: at(41)}, {Key: "default/hold/load-1", Began: at(44), Ended: at(45)}},
		Ops: []linear.Op{
			{Key: "default/linear/1", Kind: linear.Read, Answer: &linear.Record{Version: "9.0"}, End: 10},
			{Key: "default/linear/1", Kind: linear.Read, Answer: &linear.Record{Version: "8.0"}, Start: 11, End: 12, Stale: true},
			{Key: "default/linear/1", Kind: linear.Read, Answer: &linear.Record{Version: "8.0"}, Start: 9, End: 12, Stale: true},
			{Key: "default/linear/1", Kind: linear.Report, Start: 20, End: 30},
			{Key: "default/linear/1", Kind: linear.Resolve, Start: 25, End: 40, Code: "precondition_failed"},
			{Key: "default/linear/1", Kind: linear.Resolve, Start: 35, End: 40, Code: "precondition_failed"},
			{Key: "default/linear/2", Kind: linear.Open, Code: "expired"},
		},
	}
	faults := []report.Fault{
		{Kind: "worker killed", Victim: "worker-1", Began: at(12), Healed: at(14), Bites: 1},
		{Kind: "no majority of the ledger", Began: at(39), Healed: at(43), Bites: 7},
		{Kind: "no majority at all", Began: at(9), Healed: at(11)}, // it did nothing
		{Kind: "most nodes killed", Began: at(16), Healed: at(21), Bites: 2},
		{Kind: "clock six hours ahead", Bites: 1}, {Kind: "clock six hours behind"},
	}
	lost := func(key, owner string) *ledgerlog.LostAttempt {
		return &ledgerlog.LostAttempt{Key: "default/" + key, Number: 1, Owner: owner}
	}
	log := &ledgerlog.Seen{Hazards: [44]int{10: 5, 28: 2}, Lost: []*ledgerlog.LostAttempt{lost("hold/job-1", "worker-1"), lost("hold/job-2", "worker-1"), lost("hold/job-3", "worker-1"),
		lost("resend/job-4", "worker-2"), lost("hold/job-5", "worker-1"), lost("hold/job-6", "worker-2")}}
	log.Lost[2].Reported, log.Lost[3].Next, log.Lost[4].Restarted, log.Lost[5].Restarted = true, 2, true, true
	met := make(map[int]int)
	for _, row := range hazards(h, faults, log) {
		if row.Met > 0 {
			met[row.Number] = row.Met
		}
	}
	require.Equal(t, map[int]int{2: 1, 3: 1, 4: 2, 10: 5, 11: 1, 13: 1, 14: 1, 17: 4, 25: 1, 28: 2, 29: 1, 33: 1, 34: 1, 36: 1, 40: 1, 43: 1}, met)
}
