package main

import (
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
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
)

// The functions in this file are pure: they turn measurements into findings.

// folders are the user's directories for settings and spooled reports.
type folders struct {
	config       string
	configExists bool
	spool        string
	spoolErr     error // why the spool cannot be written
}

func checkFolders(f folders) checkResult {
	says := "settings " + f.config
	switch {
	case f.config == "":
		says = "no settings file (neither HOME nor XDG_CONFIG_HOME is set)"
	case !f.configExists:
		says += " (no file, which is fine)"
	}
	out := checkResult{Check: "folders", Status: statusOK, Says: says + ", reports " + f.spool, Facts: map[string]any{"config": f.config, "reports": f.spool}}
	if f.spoolErr != nil {
		out.Status, out.Says = statusFail, "reports cannot be spooled: "+f.spoolErr.Error()
		out.Do = "make the directory writable, or name another one in XDG_STATE_HOME; until then an outcome that cannot be reported at once is lost"
	}
	return out
}

// spooledReports describes the files in the spool.
type spooledReports struct {
	waiting     int
	quarantined []string // files that no server accepts
}

func checkSpool(dir string, s spooledReports) checkResult {
	f := checkResult{Check: "reports", Status: statusOK, Says: "no report is waiting", Facts: map[string]any{"waiting": s.waiting, "quarantined": len(s.quarantined)}}
	if s.waiting > 0 {
		f.Status, f.Says = statusWarn, pluralize(s.waiting, "report waits", "reports wait")+" on this disk to be sent"
		f.Do = "run a command that reaches their server, as flightd flights ls; it sends them"
	}
	if n := len(s.quarantined); n > 0 {
		f.Status, f.Says = statusWarn, fmt.Sprintf("%d waiting; %d quarantined, because no server accepts them: %s", s.waiting, n, strings.Join(s.quarantined[:min(n, 3)], ", "))
		f.Do = "read them in " + dir + ", resolve their flights by hand, then remove the files"
	}
	return f
}

// checkNodeSpool is about the reports spooled on the server's disk; checkSpool is about those on this machine's.
func checkNodeSpool(data string, s wire.Spool) checkResult {
	f := checkResult{Check: "spool", Status: statusOK, Says: "no report waits on the server's disk for its ledger",
		Facts: map[string]any{"waiting": s.Waiting, "quarantined": s.Quarantined}}
	if s.Waiting > 0 {
		f.Status, f.Says = statusWarn, pluralize(s.Waiting, "report waits", "reports wait")+" on the server's disk for its ledger"
		f.Do = "keep that disk: the effects happened, and the ledger has not stored the reports yet; see the server's log"
	}
	if s.Quarantined > 0 {
		f.Status, f.Says = statusWarn, fmt.Sprintf("%d waiting on the server's disk; %d quarantined, because they cannot be read or their flights are not in its ledger", s.Waiting, s.Quarantined)
		f.Do = "read " + filepath.Join(data, "ledger", "spool", "*.damaged") + " there, check with the provider whether the effects happened, resolve the flights, then remove the files"
	}
	return f
}

// checkRestore is about a restored ledger whose restore is not finished.
func checkRestore(r *client.Restore) checkResult {
	return checkResult{Check: "restore", Status: statusWarn, Facts: map[string]any{"asked": r.Asked, "hold_ms": r.HoldMS},
		Says: "the ledger was restored and opens nothing; callers have asked for " + pluralize(r.Asked, "key", "keys"),
		Do:   "look up the keys of flightd restore asked, import what happened, then run flightd restore finish --reason WHY"}
}

// serverAnswer is the result of connecting to one server.
type serverAnswer struct {
	address   string
	err       error
	hint      string // the remedy if nothing listens there
	speaksTLS bool   // although the address begins with http://
}

func checkServer(a serverAnswer, noServer bool) checkResult {
	facts := map[string]any{"address": a.address}
	if a.err == nil {
		return checkResult{Check: "server", Status: statusOK, Says: a.address + " answers", Facts: facts}
	}
	if a.speaksTLS {
		return checkResult{Check: "server", Status: statusFail, Says: a.address + " speaks TLS, and was asked over plain HTTP", Facts: facts,
			Do: "write https:// in --server or FLIGHTD_ADDR; revoke a token that was sent in clear text"}
	}
	if isRejection(a.err) {
		return checkResult{Check: "server", Status: statusFail, Says: a.address + " answers, and rejects the token: " + a.err.Error(), Facts: facts, Do: rejectedHint(a.err)}
	}
	f := checkResult{Check: "server", Status: statusWarn, Says: a.address + " does not answer: " + a.err.Error(), Facts: facts,
		Do: "start it, or remove it from --server and FLIGHTD_ADDR"}
	var invalid *flight.InvalidError
	switch {
	case errors.As(a.err, &invalid): // the client asked no server
		f.Status, f.Says, f.Do = statusFail, a.address+" was not asked: "+a.err.Error(), "correct --server or FLIGHTD_ADDR"
	case client.CodeOf(a.err) == wire.WrongDeployment:
		f.Status, f.Says, f.Do = statusFail, a.address+" answers, but "+a.err.Error(), "correct --server or FLIGHTD_ADDR, or FLIGHTD_DEPLOYMENT"
	case tlsHint(a.err) != "":
		f.Status, f.Do = statusFail, tlsHint(a.err)
	case !noServer:
	case errors.Is(a.err, context.DeadlineExceeded) && !errors.Is(a.err, syscall.ECONNREFUSED):
		f.Status, f.Do = statusFail, "check the process at this address: it accepts connections but does not answer in time; it may be stopped or overloaded"
	default:
		f.Status, f.Do = statusFail, "nothing listens there: "+a.hint
	}
	return f
}

// skipped is the result of a check that the token does not allow.
func skipped(check, right string) checkResult {
	return checkResult{Check: check, Status: statusSkip, Says: "not checked: it needs a token with " + right}
}

func checkParts(checks []wire.Check) checkResult {
	var ready, notReady []string
	for _, c := range checks {
		if c.OK {
			ready = append(ready, c.Name)
		} else {
			notReady = append(notReady, c.Name+": "+c.Error)
		}
	}
	if len(notReady) > 0 {
		return checkResult{Check: "parts", Status: statusFail, Says: "not ready: " + strings.Join(notReady, "; "), Do: "see the server's log; nothing new starts until all components are ready"}
	}
	return checkResult{Check: "parts", Status: statusOK, Says: "ready: " + strings.Join(ready, ", ")}
}

// checkLedger shows which ledger answers. An empty one is no failure, but it may be the wrong one.
func checkLedger(l *wire.LedgerInfo, deployment string, now time.Time) checkResult {
	return checkResult{Check: "ledger", Status: statusOK, Says: ledgerText(l, now) + "; deployment " + deployment,
		Facts: map[string]any{"empty": l.Empty, "flights": l.Flights, "in_doubt": l.InDoubt, "newest": l.Newest, "deployment": deployment}}
}

func checkVersions(client, server wire.Version) checkResult {
	f := checkResult{Check: "versions", Status: statusOK, Says: fmt.Sprintf("client and server are %s (API %s)", client.Version, server.API),
		Facts: map[string]any{"client": client.Version, "server": server.Version, "api": server.API, "client_go": client.Go, "server_go": server.Go}}
	switch {
	case server.API != client.API:
		f.Status, f.Says = statusFail, fmt.Sprintf("this program uses API %s, the server %s (%s)", client.API, server.API, server.Version)
		f.Do = "use a flightd of the server's version"
	case server.Version == client.Version:
	case server.Version == unknownVersion || client.Version == unknownVersion:
		f.Says = fmt.Sprintf("client %s, server %s (API %s); a build without a version cannot be compared", client.Version, server.Version, server.API)
	case sameCommit(client.Version, server.Version):
		f.Says = fmt.Sprintf("client %s, server %s (API %s): the same commit", client.Version, server.Version, server.API)
	default:
		f.Status, f.Says = statusWarn, fmt.Sprintf("client %s, server %s", client.Version, server.Version)
		f.Do = "restart the server with this program, or use the server's version; they are compatible, but their messages and manuals differ"
	}
	return f
}

// versionCommit matches the commit at the end of a version that the toolchain or buildVersion made up for an untagged
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
	namespace string // the one that was listed; "": all
	err       error
}

// in names the namespace that was listed; "": all.
func (f flightsFound) in() string {
	if f.namespace == "" {
		return ""
	}
	return " in namespace " + f.namespace
}

func checkDoubts(d flightsFound) checkResult {
	count, flag := len(d.flights), "-A"
	if d.namespace != "" {
		flag = "-n " + d.namespace
	}
	switch {
	case client.CodeOf(d.err) == wire.Forbidden:
		return skipped("doubts", "read")
	case d.err != nil:
		return checkResult{Check: "doubts", Status: statusWarn, Says: "the flights in doubt cannot be listed: " + d.err.Error(), Do: "see the server's log"}
	case count == 0:
		return checkResult{Check: "doubts", Status: statusOK, Says: "no flight is in doubt" + d.in(), Facts: map[string]any{"count": 0}}
	}
	says := pluralize(count, "flight is", "flights are") + " in doubt" + d.in()
	if d.more {
		says = "at least " + says
	}
	return checkResult{Check: "doubts", Status: statusWarn, Says: says + ": the effect may or may not have happened", Facts: map[string]any{"count": count},
		Do: "list them with flightd doubt ls " + flag + ", and resolve each with flightd doubt resolve"}
}

// rerunWarn is how long a flight that a person resolved as not happened may wait for its next caller.
const rerunWarn = time.Hour

// checkRerun is about flights that a person resolved as not happened and that no caller has run since: the effect is still
// missing, and perhaps nobody knows. ready are the flights that wait for a caller.
func checkRerun(ready flightsFound, now time.Time) checkResult {
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
	f := checkResult{Check: "rerun", Status: statusOK, Facts: map[string]any{"count": count}, Says: "no flight that was resolved as not happened waits for a caller" + ready.in()}
	switch {
	case client.CodeOf(ready.err) == wire.Forbidden:
		return skipped("rerun", "read")
	case ready.err != nil:
		f.Status, f.Says, f.Do = statusWarn, "the flights that wait for a caller cannot be listed: "+ready.err.Error(), "see the server's log"
	case oldest != nil:
		age := now.Sub(oldest.Resolution.At.Time)
		f.Facts["oldest_ms"] = age.Milliseconds()
		f.Says = fmt.Sprintf("%s resolved as not happened and not run again%s; the oldest, %s, for %s", pluralize(count, "flight was", "flights were"), ready.in(), oldest.Key, ageText(age))
		if age > rerunWarn {
			f.Status, f.Do = statusWarn, "start its caller again, or end the flight with flightd flights cancel "+oldest.Key+" --reason WHY"
		}
	}
	return f
}

// Bounds for the difference of two clocks. Leases do not depend on wall clocks; only displayed times do.
const (
	clockWarn = time.Second
	clockFail = time.Minute
)

func checkClock(r clockReading, ledger time.Duration) checkResult {
	uncertainty := r.roundTrip/2 + time.Millisecond // the server's time is in milliseconds
	certain := max(r.offset.Abs()-uncertainty, 0)
	f := checkResult{Check: "clock", Status: statusOK, Says: fmt.Sprintf("%s of the server's, give or take %s", offsetText(-r.offset), shortDuration(uncertainty)),
		Facts: map[string]any{"offset_ms": millis(r.offset), "round_trip_ms": millis(r.roundTrip), "ledger_offset_ms": millis(ledger)}}
	const why = "let NTP set the clock: histories, --since and retentions depend on it; leases do not"
	if certain == 0 {
		f.Says = "agrees with the server's, give or take " + shortDuration(uncertainty)
	}
	switch {
	case r.local.Year() < 2025:
		f.Status, f.Says, f.Do = statusFail, "it is "+r.local.UTC().Format(time.DateOnly)+" here", why
	case certain > clockFail:
		f.Status, f.Says, f.Do = statusFail, "this clock is "+offsetText(-r.offset)+" of the server's", why
	case certain > clockWarn:
		f.Status, f.Says, f.Do = statusWarn, "this clock is "+offsetText(-r.offset)+" of the server's", why
	case r.stepped.Abs() > 100*time.Millisecond:
		f.Status, f.Says, f.Do = statusWarn, fmt.Sprintf("this clock was set by %s during the measurement", shortDuration(r.stepped)), why
	case ledger.Abs() > clockWarn*5:
		f.Status, f.Says = statusWarn, "the ledger's time is "+offsetText(ledger)+" of its server's clock"
		f.Do = "wait: the ledger's time never jumps and is being slewed; retentions end by it"
	}
	return f
}

func offsetText(d time.Duration) string {
	if d < 0 {
		return shortDuration(-d) + " behind"
	}
	return shortDuration(d) + " ahead"
}

// maxHistory bounds the usual number of revisions. The compactor keeps the last seconds, at most 100,000 revisions.
const maxHistory = 500_000

func checkEtcd(e *wire.Etcd) checkResult {
	if e == nil {
		return checkResult{Check: "etcd", Status: statusFail, Says: "etcd does not answer the server", Do: "see the server's log; no key can be claimed until etcd answers"}
	}
	history := e.Revision - e.Compacted
	f := checkResult{Check: "etcd", Status: statusOK,
		Says:  fmt.Sprintf("%s, compacted up to revision %d of %d, %s of %s in use", e.Version, e.Compacted, e.Revision, sizeText(e.InUse), sizeText(e.Quota)),
		Facts: map[string]any{"version": e.Version, "revision": e.Revision, "compacted": e.Compacted, "size": e.Size, "in_use": e.InUse, "quota": e.Quota}}
	var away []string
	for _, m := range e.Endpoints {
		if m.Error != "" {
			away = append(away, m.URL)
		}
	}
	if len(e.Endpoints) > 0 {
		f.Says, f.Facts["endpoints"] = fmt.Sprintf("an etcd of your own with %d members: %s", len(e.Endpoints), f.Says), e.Endpoints
	}
	switch {
	case e.Problem != "":
		f.Status, f.Says, f.Do = statusFail, e.Problem, "upgrade etcd before you rely on its leases"
	case len(away) > 0:
		f.Status, f.Says, f.Do = statusWarn, strings.Join(away, ", ")+" does not answer the server", "start that member of etcd; without a majority of them no key can be claimed"
	case e.Quota > 0 && e.InUse > e.Quota*8/10:
		f.Status, f.Says = statusFail, fmt.Sprintf("%s of %s are in use; at the quota etcd rejects new claims", sizeText(e.InUse), sizeText(e.Quota))
		f.Do = "see the server's log for why it is not compacted"
	case history > maxHistory:
		f.Status, f.Says = statusWarn, fmt.Sprintf("%s has %d revisions: its history is not compacted", e.Version, history)
		f.Do = "see the server's log; in an etcd of your own, set --auto-compaction-retention"
	case e.Quota > 0 && e.InUse > e.Quota*6/10:
		f.Status, f.Do = statusWarn, "see the server's log for whether it is compacted: it is filling up"
	}
	return f
}

// checkLease compares the time of renewals with the slack. A renewal is sent after a third of the TTL; the slack is the
// time from then until the holder stops trusting its lease.
func checkLease(ttl time.Duration, r renewals) checkResult {
	if client.CodeOf(r.err) == wire.Forbidden {
		return skipped("lease", "submit")
	}
	if r.err != nil {
		return checkResult{Check: "lease", Status: statusFail, Says: "a session could not be renewed: " + r.err.Error(), Do: "see the check parts; no effect starts without a lease"}
	}
	slices.Sort(r.took)
	median, worst := r.took[len(r.took)/2], r.took[len(r.took)-1]
	slack := ttl - lease.Margin(ttl) - lease.RenewEvery(ttl)
	f := checkResult{Check: "lease", Status: statusOK,
		Says: fmt.Sprintf("renewed in %s, at worst %s; a TTL of %s leaves %s for a renewal", shortDuration(median), shortDuration(worst), ttl, shortDuration(slack)),
		Facts: map[string]any{"ttl_ms": ttl.Milliseconds(), "margin_ms": lease.Margin(ttl).Milliseconds(), "slack_ms": slack.Milliseconds(),
			"renewal_median_ms": millis(median), "renewal_worst_ms": millis(worst)}}
	const do = "give callers a longer --ttl, or find the cause: a slow network, a slow disk of etcd, or too few processors"
	switch {
	case worst > slack/2:
		f.Status, f.Do = statusFail, do
	case worst > slack/10:
		f.Status, f.Do = statusWarn, do
	}
	return f
}

// Bounds for the time of a small synced write. A flight waits for three of them.
const (
	syncWarn = 10 * time.Millisecond
	syncFail = 200 * time.Millisecond // reports go to the spool then
)

// diskReserve is the free space below which nothing new starts.
const diskReserve = 256 << 20

func checkDisk(dir string, s syncs) checkResult {
	const room = "free some space: below 256 MiB nothing new starts, and on a full disk no receipt is stored"
	if errors.Is(s.err, syscall.ENOSPC) {
		return checkResult{Check: "disk", Status: statusFail, Says: s.err.Error(), Do: room}
	}
	if s.err != nil {
		return checkResult{Check: "disk", Status: statusWarn, Says: fmt.Sprintf("measure %s: %v", dir, s.err), Do: "run flightd doctor as the owner of the directory"}
	}
	median, worst := s.took[len(s.took)/2], s.took[len(s.took)-1]
	f := checkResult{Check: "disk", Status: statusOK,
		Says:  fmt.Sprintf("%s syncs 4 KiB in %s, at worst %s; %s are free", dir, shortDuration(median), shortDuration(worst), sizeText(int64(s.free))),
		Facts: map[string]any{"data": dir, "fsync_median_ms": millis(median), "fsync_worst_ms": millis(worst), "free": s.free}}
	const slow = "move the data directory to a faster disk: every flight waits for three synced writes"
	switch {
	case s.free < diskReserve:
		f.Status, f.Do = statusFail, room
	case median > syncFail:
		f.Status, f.Do = statusFail, slow
	case median > syncWarn || worst > syncFail:
		f.Status, f.Do = statusWarn, slow
	case s.free < 1<<30:
		f.Status, f.Do = statusWarn, room
	}
	return f
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
