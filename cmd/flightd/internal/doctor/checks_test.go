package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
)

func TestDoctor_Checks(t *testing.T) {
	now := time.Now()
	fast := func(d ...time.Duration) renewals { return renewals{took: d} }
	disk := func(median, worst time.Duration, free uint64) Finding {
		return checkDisk("/d", syncs{took: []time.Duration{median, median, worst}, free: free})
	}
	etcd := func(change func(*wire.Etcd)) Finding {
		e := wire.Etcd{Version: "3.7.3", Revision: 1_000_000, Compacted: 990_000, InUse: 1 << 20, Quota: 1 << 30}
		change(&e)
		return checkEtcd(&e)
	}
	problem := func(code wire.Code) error { return &client.Error{Problem: client.Problem{Code: code, Detail: "no"}} }
	me := func(rest time.Duration) *client.WhoAmI {
		w := &client.WhoAmI{Name: "billing", Namespace: "shop", Verbs: []string{"submit", "read"}}
		if rest > 0 {
			w.ExpiresAt.Time = now.Add(rest)
		}
		return w
	}
	resolved := func(key, result string, age, opened time.Duration) client.Flight { // opened: the age of its attempt
		f := client.Flight{Key: key, Resolution: &wire.Resolution{Result: result}}
		f.Resolution.At.Time = now.Add(-age)
		if opened > 0 {
			f.LastAttempt = &wire.Attempt{OpenedAt: wire.Time{Time: now.Add(-opened)}}
		}
		return f
	}
	v := func(version, api string) wire.Version { return wire.Version{Version: version, API: api} }
	for name, test := range map[string]struct {
		got  Finding
		want string
		says string
	}{
		"folders":                  {checkFolders(folders{config: "/c", spool: "/s"}), StatusOK, "/s"},
		"spool not mine":           {checkFolders(folders{config: "/c", spool: "/s", spoolErr: errors.New("no")}), StatusFail, "cannot be spooled"},
		"no reports":               {checkSpool("/s", spooledReports{}), StatusOK, "no report is waiting"},
		"a report waits":           {checkSpool("/s", spooledReports{waiting: 1}), StatusWarn, "1 report waits on"},
		"reports wait":             {checkSpool("/s", spooledReports{waiting: 2}), StatusWarn, "2 reports wait"},
		"quarantined reports":      {checkSpool("/s", spooledReports{quarantined: []string{"x.rejected"}}), StatusWarn, "x.rejected"},
		"no target fails":          {checkNotify(nil), StatusOK, "no target"},
		"a target fails":           {checkNotify([]string{"oncall"}), StatusWarn, "oncall"},
		"server's spool":           {checkNodeSpool("/d", wire.Spool{}), StatusOK, "no report waits"},
		"it has something":         {checkNodeSpool("/d", wire.Spool{Waiting: 1}), StatusWarn, "1 report waits on the server's disk"},
		"the node has quarantined": {checkNodeSpool("/d", wire.Spool{Waiting: 1, Quarantined: 2}), StatusWarn, "2 quarantined"},
		"one of two":               {checkServer(serverAnswer{address: "a", err: errors.New("no")}, false), StatusWarn, "does not answer"},
		"none of them":             {checkServer(serverAnswer{address: "a", err: errors.New("no")}, true), StatusFail, "does not answer"},
		"token rejected":           {checkServer(serverAnswer{address: "a", err: problem(wire.Unauthenticated)}, false), StatusFail, "rejects the token"},
		"not trusted":              {checkServer(serverAnswer{address: "a", err: x509.UnknownAuthorityError{}}, true), StatusFail, "does not answer"},
		"no token demanded":        {checkToken(access{err: problem(wire.NotFound)}), StatusOK, "demands no token"},
		"no token set":             {checkToken(access{err: problem(wire.Unauthenticated)}), StatusFail, "none is set"},
		"unknown token":            {checkToken(access{set: true, origin: "env FLIGHTD_TOKEN", err: problem(wire.Unauthenticated)}), StatusFail, "does not know the token from env FLIGHTD_TOKEN"},
		"token of another":         {checkToken(access{set: true, err: problem(wire.Forbidden)}), StatusFail, "forbidden"},
		"token unknown":            {checkToken(access{set: true, err: errors.New("no")}), StatusWarn, "does not answer"},
		"token":                    {checkToken(access{set: true, me: me(0), now: now}), StatusOK, "billing of namespace shop may submit, read, never expires"},
		"token ends soon":          {checkToken(access{set: true, me: me(time.Hour), now: now}), StatusWarn, "expires"},
		"token ends late":          {checkToken(access{set: true, me: me(60 * 24 * time.Hour), now: now}), StatusOK, "expires"},
		"readable token":           {checkToken(access{set: true, me: me(0), now: now, exposed: "/t"}), StatusWarn, "other users of this machine may read the token in /t"},
		"token in plain text":      {checkToken(access{set: true, me: me(0), now: now, insecure: "http://a"}), StatusWarn, "plain text"},
		"certificate":              {checkCertificate(certificate{"https://a", now.AddDate(1, 0, 0), nil}, now), StatusOK, "https://a"},
		"certificate ends":         {checkCertificate(certificate{"https://a", now.AddDate(0, 0, 3), nil}, now), StatusWarn, "expires"},
		"bad certificate":          {checkCertificate(certificate{"https://a", time.Time{}, errors.New("no")}, now), StatusFail, "https://a: no"},
		"ready":                    {checkParts([]wire.Check{{Name: "etcd", OK: true}}), StatusOK, "etcd"},
		"not ready":                {checkParts([]wire.Check{{Name: "etcd"}, {Name: "ledger", OK: true}}), StatusFail, "not ready: etcd"},
		"same version":             {checkVersions(v("1", "v1"), v("1", "v1")), StatusOK, "1"},
		"other version":            {checkVersions(v("1", "v1"), v("2", "v1")), StatusWarn, "client 1, server 2"},
		"no version":               {checkVersions(v("devel", "v1"), v("v0.0.0-20261122001122-e17c766aabbc", "v1")), StatusOK, "cannot be compared"},
		"same commit":              {checkVersions(v("devel-e17c766aabbc", "v1"), v("v0.0.0-20261122001122-e17c766aabbc", "v1")), StatusOK, "the same commit"},
		"other commit":             {checkVersions(v("devel-e17c766aabbd", "v1"), v("v0.0.0-20261122001122-e17c766aabbc", "v1")), StatusWarn, "client devel-"},
		"local changes":            {checkVersions(v("devel-e17c766aabbc-dirty", "v1"), v("devel-e17c766aabbc", "v1")), StatusWarn, "client devel-"},
		"no doubts":                {checkDoubts(flightsFound{}), StatusOK, "no flight is in doubt"},
		"a doubt":                  {checkDoubts(flightsFound{flights: make([]client.Flight, 1)}), StatusWarn, "1 flight is in doubt"},
		"many doubts":              {checkDoubts(flightsFound{flights: make([]client.Flight, 500), more: true}), StatusWarn, "at least 500 flights are in doubt"},
		"doubts unknown":           {checkDoubts(flightsFound{err: errors.New("no")}), StatusWarn, "cannot be listed"},
		"a doubt of mine":          {checkDoubts(flightsFound{flights: make([]client.Flight, 1), namespace: "shop"}), StatusWarn, "1 flight is in doubt in namespace shop"},
		"nothing to run again":     {checkRerun(flightsFound{flights: []client.Flight{{Key: "a"}, resolved("b", "happened", 5*time.Hour, 0), resolved("c", "not_happened", 5*time.Hour, time.Hour)}}, now), StatusOK, "no flight that was resolved"},
		"run again soon":           {checkRerun(flightsFound{flights: []client.Flight{resolved("a", "not_happened", time.Minute, 2*time.Hour)}}, now), StatusOK, "the oldest, a, for 1 min"},
		"nobody runs it again":     {checkRerun(flightsFound{flights: []client.Flight{resolved("a", "not_happened", time.Minute, 0), resolved("b", "not_happened", 5*time.Hour, 6*time.Hour)}}, now), StatusWarn, "2 flights were resolved as not happened and not run again; the oldest, b, for 5 h"},
		"rerun not allowed":        {checkRerun(flightsFound{err: problem(wire.Forbidden)}, now), statusSkip, "read"},
		"TLS over plain HTTP":      {checkServer(serverAnswer{address: "http://a", err: problem(wire.Forbidden), speaksTLS: true}, false), StatusFail, "http://a speaks TLS"},
		"other API":                {checkVersions(v("1", "v1"), v("9", "v2")), StatusFail, "uses API v1"},

		"clock":                {checkClock(clockReading{offset: 900 * time.Microsecond, local: now}, 0), StatusOK, "agrees"},
		"clock, slow way":      {checkClock(clockReading{offset: 2 * time.Second, roundTrip: 4 * time.Second, local: now}, 0), StatusOK, "agrees"},
		"clock, nearly":        {checkClock(clockReading{offset: 500 * time.Millisecond, local: now}, 0), StatusOK, "500ms behind"},
		"clock behind":         {checkClock(clockReading{offset: 3 * time.Second, local: now}, 0), StatusWarn, "3s behind"},
		"clock far ahead":      {checkClock(clockReading{offset: -time.Hour, local: now}, 0), StatusFail, "1h0m0s ahead"},
		"clock of 1970":        {checkClock(clockReading{local: time.Unix(0, 0)}, 0), StatusFail, "1970"},
		"clock being set":      {checkClock(clockReading{stepped: -time.Second, local: now}, 0), StatusWarn, "was set by -1s"},
		"ledger time deviates": {checkClock(clockReading{local: now}, time.Minute), StatusWarn, "ledger"},
		"etcd":                 {etcd(func(*wire.Etcd) {}), StatusOK, "compacted up to revision 990000 of 1000000"},
		"no etcd":              {checkEtcd(nil), StatusFail, "does not answer"},
		"old etcd":             {etcd(func(e *wire.Etcd) { e.Problem = "too old" }), StatusFail, "too old"},
		"etcd member away": {etcd(func(e *wire.Etcd) {
			e.Endpoints = []wire.EtcdMember{{URL: "https://a:2379"}, {URL: "https://b:2379", Error: "x"}}
		}), StatusWarn, "https://b:2379 does not answer"},
		"etcd never forgets":  {etcd(func(e *wire.Etcd) { e.Compacted = 0 }), StatusWarn, "not compacted"},
		"etcd fills up":       {etcd(func(e *wire.Etcd) { e.InUse = e.Quota * 7 / 10 }), StatusWarn, "716.8 MiB"},
		"etcd is nearly full": {etcd(func(e *wire.Etcd) { e.InUse = e.Quota * 9 / 10 }), StatusFail, "rejects new claims"},

		"lease not allowed":      {checkLease(15*time.Second, renewals{err: problem(wire.Forbidden)}), statusSkip, "it needs a token with submit"},
		"doubts not allowed":     {checkDoubts(flightsFound{err: problem(wire.Forbidden)}), statusSkip, "it needs a token with read"},
		"lease":                  {checkLease(15*time.Second, fast(time.Millisecond, 2*time.Millisecond)), StatusOK, "at worst 2ms; a TTL of 15s leaves 7s"},
		"slow lease":             {checkLease(15*time.Second, fast(time.Millisecond, time.Second)), StatusWarn, "at worst 1s"},
		"hopeless":               {checkLease(15*time.Second, fast(4*time.Second)), StatusFail, "at worst 4s"},
		"no lease":               {checkLease(15*time.Second, renewals{err: errors.New("no")}), StatusFail, "could not be renewed"},
		"disk":                   {disk(time.Millisecond, 5*time.Millisecond, 50<<30), StatusOK, "/d syncs 4 KiB in 1ms, at worst 5ms; 50.0 GiB"},
		"slow disk":              {disk(20*time.Millisecond, 30*time.Millisecond, 50<<30), StatusWarn, "20ms"},
		"stalling disk":          {disk(time.Millisecond, time.Second, 50<<30), StatusWarn, "at worst 1s"},
		"hopeless disk":          {disk(300*time.Millisecond, time.Second, 50<<30), StatusFail, "300ms"},
		"filling disk":           {disk(time.Millisecond, time.Millisecond, 500<<20), StatusWarn, "500.0 MiB"},
		"full disk":              {disk(time.Millisecond, time.Millisecond, 50<<20), StatusFail, "50.0 MiB"},
		"disk under the reserve": {disk(time.Millisecond, time.Millisecond, 200<<20), StatusFail, "are free"},
		"disk without a byte":    {checkDisk("/d", syncs{err: fmt.Errorf("write /d/doctor-1: %w", syscall.ENOSPC)}), StatusFail, "no space left"},
		"foreign disk":           {checkDisk("/d", syncs{err: errors.New("no")}), StatusWarn, "measure /d"},
	} {
		f := test.got
		require.Equal(t, test.want, f.Status, "%s: want %s %q, got %+v", name, test.want, test.says, f)
		require.Contains(t, f.Says, test.says, "%s: want %s %q, got %+v", name, test.want, test.says, f)
		require.Equal(t, f.Status == StatusOK || f.Status == statusSkip, f.Do == "", "%s: want %s %q, got %+v", name, test.want, test.says, f)
	}
	d := summarize([]Finding{{Status: StatusOK}, {Status: StatusFail}, {Status: StatusWarn}})
	require.Equal(t, StatusFail, d.Status, "the worst of them is %s", d.Status)
	d = summarize([]Finding{{Status: statusSkip}, {Status: StatusWarn}, {Status: statusSkip}})
	require.Equal(t, StatusWarn, d.Status, "a skipped check is no finding")
}

// TestDoctor_TimeoutIsNotConnectionRefused: the remedy for a server that does not answer is not to start another one.
func TestDoctor_TimeoutIsNotConnectionRefused(t *testing.T) {
	for cause, missing := range map[error]bool{
		context.DeadlineExceeded: false,
		syscall.ECONNREFUSED:     true,
		errors.Join(context.DeadlineExceeded, syscall.ECONNREFUSED): true, // the last of several tries timed out
	} {
		f := checkServer(serverAnswer{address: "a", err: &effect.Unavailable{Code: "unreachable", Cause: cause}}, true)
		require.Equal(t, StatusFail, f.Status, "%v: %+v", cause, f)
		require.Equal(t, missing, strings.Contains(f.Do, "nothing listens there"), "%v: %+v", cause, f)
	}
}

func TestDoctor_ComparesServersAndNodes(t *testing.T) {
	cluster := func(change func(*client.ClusterNode)) Finding {
		nodes := []client.ClusterNode{
			{Name: "a", Role: "leader", Version: "1", EtcdOK: true, Reads: 5}, {Name: "b", Role: "follower", Version: "1", EtcdOK: true, Reads: 5, ClockMS: -200},
			{Name: "c", Role: "follower", Version: "1", EtcdOK: true, Reads: 5, ClockMS: 300},
		}
		change(&nodes[2])
		return checkCluster(&client.Cluster{Leader: "a", Nodes: nodes})
	}
	servers := func(deployment, version string) Finding {
		return checkServers([]listedServer{{"http://a", "d1", "1"}, {"http://b", "d1", "1"}, {"http://c", deployment, version}})
	}
	for name, test := range map[string]struct {
		got  Finding
		want string
		says string
	}{
		"one deployment":      {servers("d1", "1"), StatusOK, "3 servers of one deployment"},
		"two deployments":     {servers("d2", "1"), StatusFail, "http://a serves deployment d1, and http://c d2"},
		"two versions":        {servers("d1", "2"), StatusWarn, "http://c 2"},
		"an unknown version":  {servers("d1", ""), StatusOK, "3 servers"},
		"a whole cluster":     {cluster(func(*client.ClusterNode) {}), StatusOK, "3 nodes, led by a"},
		"a node is down":      {cluster(func(n *client.ClusterNode) { n.Role, n.Problem, n.Reads = "unreachable", "no route", 0 }), StatusWarn, "node c does not answer: no route"},
		"a node without etcd": {cluster(func(n *client.ClusterNode) { n.EtcdOK = false }), StatusWarn, "etcd does not answer node c"},
		"a damaged disk":      {cluster(func(n *client.ClusterNode) { n.DiskDamaged = true }), StatusWarn, "a block on the disk of node c is damaged"},
		"and it is stopped":   {cluster(func(n *client.ClusterNode) { n.Role, n.DiskDamaged = "unreachable", true }), StatusWarn, "a block on the disk of node c is damaged; node c does not answer"},
		"a lone one":          {checkCluster(&client.Cluster{Nodes: []client.ClusterNode{{Name: "lone", Role: "leader", EtcdOK: true, DiskDamaged: true}}}), StatusWarn, "a block on the disk is damaged"},
		"clocks":              {cluster(func(n *client.ClusterNode) { n.ClockMS = -5000 }), StatusWarn, "the clock of node c is 5s behind of the leader's"},
		"versions":            {cluster(func(n *client.ClusterNode) { n.Version = "2" }), StatusWarn, "versions 1, 2"},
		"levels":              {cluster(func(n *client.ClusterNode) { n.Reads = 6 }), StatusWarn, "feature levels 5, 6"},
	} {
		f := test.got
		require.Equal(t, test.want, f.Status, "%s: %+v", name, f)
		require.Contains(t, f.Says, test.says, "%s: %+v", name, f)
		require.Equal(t, f.Status == StatusOK, f.Do == "", "%s: %+v", name, f)
		require.NotContains(t, f.Says, "levels 0", name)
	}
}
