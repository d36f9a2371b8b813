package drill

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/internal/crashpoint"
)

func TestPlanHasEveryVictimAtEveryPointUnderEveryRecovery(t *testing.T) {
	runs := Plan()
	require.Len(t, runs, len(crashpoint.All())*3*3+4*3)
	ids := map[string]bool{}
	for _, r := range runs {
		require.False(t, ids[r.ID()], "duplicate run %s", r.ID())
		ids[r.ID()] = true
		require.Equal(t, r.Victim == VictimNone, r.Fault != FaultNone)
	}
	for _, victim := range []Victim{VictimCaller, VictimFlightd, VictimBoth} {
		for _, point := range crashpoint.All() {
			for _, recovery := range recoveries() {
				require.True(t, ids[Run{Recovery: recovery, Victim: victim, Point: point}.ID()])
			}
		}
	}
}

func TestSelect(t *testing.T) {
	for _, test := range []struct {
		words []string
		want  int
	}{
		{nil, len(Plan())},
		{[]string{"after-effect"}, 9},
		{[]string{"after-effect", "drop"}, 12},
		{[]string{"after-effect", "verify"}, 3},
		{[]string{"caller", "hold"}, len(crashpoint.All())},
		{[]string{"both", "flightd", "before-open", "resend", "hold"}, 4},
	} {
		runs, err := Select(Plan(), test.words)
		require.NoError(t, err)
		require.Len(t, runs, test.want, "%v", test.words)
	}
	_, err := Select(Plan(), []string{"after-lunch"})
	require.ErrorContains(t, err, `unknown name "after-lunch"; allowed: caller, flightd, both, before-open`)
	_, err = Select(Plan(), []string{"caller", "drop"})
	require.EqualError(t, err, "no run matches caller, drop")
	_, err = Select(Plan(), []string{""})
	require.Error(t, err)
}

func TestFlightdCrashes(t *testing.T) {
	for _, point := range crashpoint.All() {
		passes := point != crashpoint.BeforeSend && point != crashpoint.AfterEffect
		require.Equal(t, passes, Run{Victim: VictimFlightd, Point: point}.flightdCrashes(), point)
		require.False(t, Run{Victim: VictimCaller, Point: point}.flightdCrashes(), point)
	}
}

func TestTable(t *testing.T) {
	kept := Row{Run: callerKilled("resend"), Scenario: callerKilled("resend").Scenario(), Facts: resentFacts(), KeySame: true, TookMS: 2345}
	broken := Row{Run: callerKilled("hold"), Scenario: callerKilled("hold").Scenario(), Facts: resolvedFacts(), Broken: []string{"2 tickets for one intent"}}
	never := Row{Run: Run{Recovery: "verify", Fault: FaultDrop}, Scenario: "drop", Facts: Facts{Error: "lost"}, Broken: []string{"lost"}}
	alone := Row{Run: Run{Recovery: NoRecovery, Fault: FaultSlow}, Scenario: "slow"}
	var out bytes.Buffer
	r := Report{Rows: []Row{kept, broken, never, alone}, Broken: 2, Took: 61 * time.Second, Dir: "/kept"}
	require.NoError(t, r.WriteTable(&out))
	lines := strings.Split(out.String(), "\n")
	require.Regexp(t, `^kill -9 caller at after-effect +resend +yes +1 +1 +#1 lost, #2 succeeded +succeeded +2.3s +kept$`, lines[1])
	require.Regexp(t, `^kill -9 caller at after-effect +hold +NO +1 +1 +#1 lost, in doubt, person: happened +succeeded +0s +BROKEN$`, lines[2])
	require.Regexp(t, `^drop +verify +- +0 +0 .* NOT COMPLETED$`, lines[3])
	require.Equal(t, "kill -9 caller at after-effect, hold: 2 tickets for one intent", lines[5])
	require.Equal(t, "4 runs in 1m1s: a promise was broken in 2; logs and data are in /kept", lines[7])
	require.Equal(t, "1 runs in 0s: every promise was kept", Report{Rows: make([]Row, 1)}.Summary())
}

func TestSummarizeHistory(t *testing.T) {
	require.Equal(t, "#1 lost, look-up: happened", summarizeHistory(lookedUpFacts().History))
	require.Equal(t, "#1 abandoned, look-up: unknown, #2 fenced, OVERLAP", summarizeHistory([]client.Event{
		{Kind: "abandoned", Attempt: 1}, {Kind: "verification_reported"}, {Kind: "report_fenced", Attempt: 2}, {Kind: "overlap"},
	}))
}
