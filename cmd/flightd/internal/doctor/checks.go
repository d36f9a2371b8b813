package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
)

// The functions in this file are pure: they judge measurements.

// rule is something that may be wrong, and the remedy.
type rule struct {
	holds  bool
	status string // statusSkip, StatusWarn or StatusFail; StatusOK ends the rules
	says   string // "": as if nothing were wrong
	do     string
}

// judge returns the finding of a check: that of the first rule that holds, else that nothing is wrong.
func judge(check, says string, facts map[string]any, rules ...rule) Finding {
	f := Finding{Check: check, Status: StatusOK, Says: says, Facts: facts}
	for _, r := range rules {
		if r.holds {
			f.Status, f.Do, f.Says = r.status, r.do, cmp.Or(r.says, says)
			break
		}
	}
	return f
}

// text returns the text of an error, or "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// folders are the user's directories for settings and spooled reports.
type folders struct {
	config       string
	configExists bool
	spool        string
	spoolErr     error    // why the spool cannot be written
	unknown      []string // variables that look like settings but are not
}

func checkFolders(f folders) Finding {
	says := "settings " + f.config
	switch {
	case f.config == "":
		says = "no settings file (neither HOME nor XDG_CONFIG_HOME is set)"
	case !f.configExists:
		says += " (no file, which is fine)"
	}
	return judge("folders", says+", reports "+f.spool, map[string]any{"config": f.config, "reports": f.spool},
		rule{f.spoolErr != nil, StatusFail, "reports cannot be spooled: " + text(f.spoolErr),
			"make the directory writable, or name another one in XDG_STATE_HOME; until then an outcome that cannot be reported at once is lost"},
		rule{len(f.unknown) > 0, StatusWarn, "variables that are not used: " + strings.Join(f.unknown, ", "), "remove or correct them; flightd help settings lists the variables"})
}

// spooledReports describes the files in the spool.
type spooledReports struct {
	waiting     int
	quarantined []string // files that no server accepts
}

func checkSpool(dir string, s spooledReports) Finding {
	n := len(s.quarantined)
	return judge("reports", "no report is waiting", map[string]any{"waiting": s.waiting, "quarantined": n},
		rule{n > 0, StatusWarn, fmt.Sprintf("%d waiting; %d quarantined, because no server accepts them: %s", s.waiting, n, strings.Join(s.quarantined[:min(n, 3)], ", ")),
			"read them in " + dir + ", resolve their flights by hand, then remove the files"},
		rule{s.waiting > 0, StatusWarn, cli.Pluralize(s.waiting, "report waits", "reports wait") + " on this disk to be sent",
			"run a command that reaches their server, as flightd flights ls; it sends them"})
}

// checkNodeSpool is about the reports spooled on the server's disk; checkSpool is about those on this machine's.
func checkNodeSpool(data string, s wire.Spool) Finding {
	return judge("spool", "no report waits on the server's disk for its ledger", map[string]any{"waiting": s.Waiting, "quarantined": s.Quarantined},
		rule{s.Quarantined > 0, StatusWarn,
			fmt.Sprintf("%d waiting on the server's disk; %d quarantined, because they cannot be read or their flights are not in its ledger", s.Waiting, s.Quarantined),
			"read " + filepath.Join(data, "ledger", "spool", "*.damaged") + " there, check with the provider whether the effects happened, resolve the flights, then remove the files"},
		rule{s.Waiting > 0, StatusWarn, cli.Pluralize(s.Waiting, "report waits", "reports wait") + " on the server's disk for its ledger",
			"keep that disk: the effects happened, and the ledger has not stored the reports yet; see the server's log"})
}

// checkNotify is about the targets of notifications that take none.
func checkNotify(failing []string) Finding {
	return judge("notify", "no target of notifications fails", map[string]any{"failing": failing},
		rule{len(failing) > 0, StatusWarn, "these targets take no notifications: " + strings.Join(failing, ", "),
			"run flightd notify ls for the reasons, repair the target, and try it with flightd notify test"})
}

// checkRestore is about a restored ledger whose restore is not finished.
func checkRestore(r *client.Restore) Finding {
	return Finding{Check: "restore", Status: StatusWarn, Facts: map[string]any{"asked": r.Asked, "hold_ms": r.HoldMS},
		Says: "the ledger was restored and opens nothing; callers have asked for " + cli.Pluralize(r.Asked, "key", "keys"),
		Do:   "look up the keys of flightd restore asked, import what happened, then run flightd restore finish --reason WHY"}
}

// serverAnswer is the result of connecting to one server.
type serverAnswer struct {
	address   string
	err       error
	hint      string // the remedy if nothing listens there
	speaksTLS bool   // although the address begins with http://
}

func checkServer(a serverAnswer, noServer bool) Finding {
	says := a.address + " does not answer: " + text(a.err)
	var invalid *flight.InvalidError // the client asked no server
	return judge("server", a.address+" answers", map[string]any{"address": a.address},
		rule{a.err == nil, StatusOK, "", ""},
		rule{a.speaksTLS, StatusFail, a.address + " speaks TLS, and was asked over plain HTTP",
			"write https:// in --server or FLIGHTD_ADDR; revoke a token that was sent in clear text"},
		rule{isRejection(a.err), StatusFail, a.address + " answers, and rejects the token: " + text(a.err), rejectedHint(a.err)},
		rule{errors.As(a.err, &invalid), StatusFail, a.address + " was not asked: " + text(a.err), "correct --server or FLIGHTD_ADDR"},
		rule{client.CodeOf(a.err) == wire.WrongDeployment, StatusFail, a.address + " answers, but " + text(a.err), "correct --server or FLIGHTD_ADDR, or FLIGHTD_DEPLOYMENT"},
		rule{tlsHint(a.err) != "", StatusFail, says, tlsHint(a.err)},
		rule{!noServer, StatusWarn, says, "start it, or remove it from --server and FLIGHTD_ADDR"},
		rule{errors.Is(a.err, context.DeadlineExceeded) && !errors.Is(a.err, syscall.ECONNREFUSED), StatusFail, says,
			"check the process at this address: it accepts connections but does not answer in time; it may be stopped or overloaded"},
		rule{true, StatusFail, says, "nothing listens there: " + a.hint})
}

// tlsHint is cli.TLSHint for an error that may be nil.
func tlsHint(err error) string {
	if err == nil {
		return ""
	}
	return cli.TLSHint(err)
}

// skipped is the result of a check that the token does not allow.
func skipped(check, right string) Finding {
	return Finding{Check: check, Status: statusSkip, Says: "not checked: it needs a token with " + right}
}

func checkParts(checks []wire.Check) Finding {
	var ready, notReady []string
	for _, c := range checks {
		if c.OK {
			ready = append(ready, c.Name)
		} else {
			notReady = append(notReady, c.Name+": "+c.Error)
		}
	}
	return judge("parts", "ready: "+strings.Join(ready, ", "), nil,
		rule{len(notReady) > 0, StatusFail, "not ready: " + strings.Join(notReady, "; "), "see the server's log; nothing new starts until all components are ready"})
}

// checkLedger shows which ledger answers. An empty one is no failure, but it may be the wrong one.
func checkLedger(l *wire.LedgerInfo, deployment string, now time.Time) Finding {
	return Finding{Check: "ledger", Status: StatusOK, Says: cli.LedgerText(l, now) + "; deployment " + deployment,
		Facts: map[string]any{"empty": l.Empty, "flights": l.Flights, "in_doubt": l.InDoubt, "newest": l.Newest, "deployment": deployment}}
}

func checkVersions(client, server wire.Version) Finding {
	both := fmt.Sprintf("client %s, server %s", client.Version, server.Version)
	unknown := server.Version == cli.UnknownVersion || client.Version == cli.UnknownVersion
	return judge("versions", fmt.Sprintf("client and server are %s (API %s)", client.Version, server.API),
		map[string]any{"client": client.Version, "server": server.Version, "api": server.API, "client_go": client.Go, "server_go": server.Go},
		rule{server.API != client.API, StatusFail, fmt.Sprintf("this program uses API %s, the server %s (%s)", client.API, server.API, server.Version), "use a flightd of the server's version"},
		rule{server.Version == client.Version, StatusOK, "", ""},
		rule{unknown, StatusOK, fmt.Sprintf("%s (API %s); a build without a version cannot be compared", both, server.API), ""},
		rule{sameCommit(client.Version, server.Version), StatusOK, fmt.Sprintf("%s (API %s): the same commit", both, server.API), ""},
		rule{true, StatusWarn, both, "restart the server with this program, or use the server's version; they are compatible, but their messages and manuals differ"})
}

// versionCommit matches the commit at the end of a version that the toolchain or the command line made up for an untagged
// build.
var versionCommit = regexp.MustCompile(`-([0-9a-f]{12})([+-]dirty)?$`)

// sameCommit reports whether two versions name the same commit, both with local changes or both without.
func sameCommit(a, b string) bool {
	x, y := versionCommit.FindStringSubmatch(a), versionCommit.FindStringSubmatch(b)
	return x != nil && y != nil && x[1] == y[1] && (x[2] == "") == (y[2] == "")
}

// flightsFound are flights that were listed for a check.
type flightsFound struct {
	flights   []client.Flight
	more      bool   // there are more than were listed
	namespace string // that was listed; "": all namespaces
	err       error
}

// in returns " in namespace NAME", or "" if all namespaces were listed.
func (f flightsFound) in() string {
	if f.namespace == "" {
		return ""
	}
	return " in namespace " + f.namespace
}

func checkDoubts(d flightsFound) Finding {
	count, flag, least := len(d.flights), "-A", ""
	if d.namespace != "" {
		flag = "-n " + d.namespace
	}
	if d.more {
		least = "at least "
	}
	return d.judge("doubts", "the flights in doubt", "no flight is in doubt"+d.in(), map[string]any{"count": count},
		rule{count > 0, StatusWarn, least + cli.Pluralize(count, "flight is", "flights are") + " in doubt" + d.in() + ": the effect may or may not have happened",
			"list them with flightd doubt ls " + flag + ", and resolve each with flightd doubt resolve"})
}

// judge is judge for a check of flights, which are described by what.
func (f flightsFound) judge(check, what, says string, facts map[string]any, rules ...rule) Finding {
	switch {
	case client.CodeOf(f.err) == wire.Forbidden:
		return skipped(check, "read")
	case f.err != nil:
		return Finding{Check: check, Status: StatusWarn, Says: what + " cannot be listed: " + f.err.Error(), Do: "see the server's log"}
	}
	return judge(check, says, facts, rules...)
}

// rerunWarn is how long a flight that a person resolved as not happened may wait for its next caller.
const rerunWarn = time.Hour

// checkRerun is about flights that a person resolved as not happened and that no caller has run since: the effect is still
// missing, and perhaps nobody knows. ready are the flights that wait for a caller.
func checkRerun(ready flightsFound, now time.Time) Finding {
	var oldest *client.Flight
	count := 0
	for i := range ready.flights {
		f := &ready.flights[i]
		if f.Resolution == nil || f.Resolution.Result != wire.ResultNotHappened || f.LastAttempt != nil && f.LastAttempt.OpenedAt.After(f.Resolution.At.Time) {
			continue
		}
		if count++; oldest == nil || f.Resolution.At.Before(oldest.Resolution.At.Time) {
			oldest = f
		}
	}
	facts, says, late, do := map[string]any{"count": count}, "no flight that was resolved as not happened waits for a caller"+ready.in(), false, ""
	if oldest != nil {
		age := now.Sub(oldest.Resolution.At.Time)
		facts["oldest_ms"], late = age.Milliseconds(), age > rerunWarn
		says = fmt.Sprintf("%s resolved as not happened and not run again%s; the oldest, %s, for %s", cli.Pluralize(count, "flight was", "flights were"), ready.in(), oldest.Key, cli.AgeText(age))
		do = "start its caller again, or end the flight with flightd flights cancel " + oldest.Key + " --reason WHY"
	}
	return ready.judge("rerun", "the flights that wait for a caller", says, facts, rule{late, StatusWarn, "", do})
}

// Bounds for the difference of two clocks. Leases do not depend on wall clocks; only displayed times do.
const (
	clockWarn = time.Second
	clockFail = time.Minute
)

func checkClock(r clockReading, ledger time.Duration) Finding {
	uncertainty := r.roundTrip/2 + time.Millisecond // the server's time is in milliseconds
	certain := max(r.offset.Abs()-uncertainty, 0)
	const why = "let NTP set the clock: histories, --since and retentions depend on it; leases do not"
	says := fmt.Sprintf("%s of the server's, give or take %s", offsetText(-r.offset), shortDuration(uncertainty))
	if certain == 0 {
		says = "agrees with the server's, give or take " + shortDuration(uncertainty)
	}
	apart := "this clock is " + offsetText(-r.offset) + " of the server's"
	return judge("clock", says, map[string]any{"offset_ms": millis(r.offset), "round_trip_ms": millis(r.roundTrip), "ledger_offset_ms": millis(ledger)},
		rule{r.local.Year() < 2025, StatusFail, "it is " + r.local.UTC().Format(time.DateOnly) + " here", why},
		rule{certain > clockFail, StatusFail, apart, why},
		rule{certain > clockWarn, StatusWarn, apart, why},
		rule{r.stepped.Abs() > 100*time.Millisecond, StatusWarn, fmt.Sprintf("this clock was set by %s during the measurement", shortDuration(r.stepped)), why},
		rule{ledger.Abs() > clockWarn*5, StatusWarn, "the ledger's time is " + offsetText(ledger) + " of its server's clock",
			"wait: the ledger's time never jumps and is being slewed; retentions end by it"})
}

func offsetText(d time.Duration) string {
	if d < 0 {
		return shortDuration(-d) + " behind"
	}
	return shortDuration(d) + " ahead"
}

// maxHistory bounds the usual number of revisions. The compactor keeps the last seconds, at most 100,000 revisions.
const maxHistory = 500_000

func checkEtcd(e *wire.Etcd) Finding {
	if e == nil {
		return Finding{Check: "etcd", Status: StatusFail, Says: "etcd does not answer the server", Do: "see the server's log; no key can be claimed until etcd answers"}
	}
	history := e.Revision - e.Compacted
	says := fmt.Sprintf("%s, compacted up to revision %d of %d, %s of %s in use", e.Version, e.Compacted, e.Revision, sizeText(e.InUse), sizeText(e.Quota))
	facts := map[string]any{"version": e.Version, "revision": e.Revision, "compacted": e.Compacted, "size": e.Size, "in_use": e.InUse, "quota": e.Quota}
	var away []string
	for _, m := range e.Endpoints {
		if m.Error != "" {
			away = append(away, m.URL)
		}
	}
	if len(e.Endpoints) > 0 {
		says, facts["endpoints"] = fmt.Sprintf("an etcd of your own with %d members: %s", len(e.Endpoints), says), e.Endpoints
	}
	return judge("etcd", says, facts,
		rule{e.Problem != "", StatusFail, e.Problem, "upgrade etcd before you rely on its leases"},
		rule{len(away) > 0, StatusWarn, strings.Join(away, ", ") + " does not answer the server", "start that member of etcd; without a majority of them no key can be claimed"},
		rule{e.Quota > 0 && e.InUse > e.Quota*8/10, StatusFail, fmt.Sprintf("%s of %s are in use; at the quota etcd rejects new claims", sizeText(e.InUse), sizeText(e.Quota)),
			"see the server's log for why it is not compacted"},
		rule{history > maxHistory, StatusWarn, fmt.Sprintf("%s has %d revisions: its history is not compacted", e.Version, history),
			"see the server's log; in an etcd of your own, set --auto-compaction-retention"},
		rule{e.Quota > 0 && e.InUse > e.Quota*6/10, StatusWarn, "", "see the server's log for whether it is compacted: it is filling up"})
}

// checkLease compares the time of renewals with the slack. A renewal is sent after a third of the TTL; the slack is the
// time from then until the holder stops trusting its lease.
func checkLease(ttl time.Duration, r renewals) Finding {
	if client.CodeOf(r.err) == wire.Forbidden {
		return skipped("lease", "submit")
	}
	if r.err != nil {
		return Finding{Check: "lease", Status: StatusFail, Says: "a session could not be renewed: " + r.err.Error(), Do: "see the check parts; no effect starts without a lease"}
	}
	slices.Sort(r.took)
	median, worst := r.took[len(r.took)/2], r.took[len(r.took)-1]
	slack := ttl - lease.Margin(ttl) - lease.RenewEvery(ttl)
	const do = "give callers a longer --ttl, or find the cause: a slow network, a slow disk of etcd, or too few processors"
	return judge("lease", fmt.Sprintf("renewed in %s, at worst %s; a TTL of %s leaves %s for a renewal", shortDuration(median), shortDuration(worst), ttl, shortDuration(slack)),
		map[string]any{"ttl_ms": ttl.Milliseconds(), "margin_ms": lease.Margin(ttl).Milliseconds(), "slack_ms": slack.Milliseconds(),
			"renewal_median_ms": millis(median), "renewal_worst_ms": millis(worst)},
		rule{worst > slack/2, StatusFail, "", do},
		rule{worst > slack/10, StatusWarn, "", do})
}

// Bounds for the time of a small synced write. A flight waits for three of them.
const (
	syncWarn = 10 * time.Millisecond
	syncFail = 200 * time.Millisecond // reports go to the spool then
)

// diskReserve is the free space below which nothing new starts.
const diskReserve = 256 << 20

func checkDisk(dir string, s syncs) Finding {
	const room = "free some space: below 256 MiB nothing new starts, and on a full disk no receipt is stored"
	if errors.Is(s.err, syscall.ENOSPC) {
		return Finding{Check: "disk", Status: StatusFail, Says: s.err.Error(), Do: room}
	}
	if s.err != nil {
		return Finding{Check: "disk", Status: StatusWarn, Says: fmt.Sprintf("measure %s: %v", dir, s.err), Do: "run flightd doctor as the owner of the directory"}
	}
	median, worst := s.took[len(s.took)/2], s.took[len(s.took)-1]
	const slow = "move the data directory to a faster disk: every flight waits for three synced writes"
	return judge("disk", fmt.Sprintf("%s syncs 4 KiB in %s, at worst %s; %s are free", dir, shortDuration(median), shortDuration(worst), sizeText(int64(s.free))),
		map[string]any{"data": dir, "fsync_median_ms": millis(median), "fsync_worst_ms": millis(worst), "free": s.free},
		rule{s.free < diskReserve, StatusFail, "", room},
		rule{median > syncFail, StatusFail, "", slow},
		rule{median > syncWarn || worst > syncFail, StatusWarn, "", slow},
		rule{s.free < 1<<30, StatusWarn, "", room})
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shortDuration formats a duration with about three digits.
func shortDuration(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs >= 10*time.Second:
		return d.Round(time.Second).String()
	case abs >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case abs >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func sizeText(b int64) string {
	if b >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}
