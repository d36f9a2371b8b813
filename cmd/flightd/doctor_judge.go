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

	"github.com/flightd/flightd/internal/wire"
	"github.com/flightd/flightd/lease"
)

// The functions in this file are pure: they turn measurements into findings.

// folders are the user's directories for settings and spooled reports.
type folders struct {
	config      string
	configThere bool
	spool       string
	trouble     error // why the spool cannot be written
}

func judgeFolders(f folders) finding {
	says := "settings " + f.config
	switch {
	case f.config == "":
		says = "no settings file (neither HOME nor XDG_CONFIG_HOME is set)"
	case !f.configThere:
		says += " (no file, which is fine)"
	}
	out := finding{Check: "folders", Status: ok, Says: says + ", reports " + f.spool, Facts: map[string]any{"config": f.config, "reports": f.spool}}
	if f.trouble != nil {
		out.Status, out.Says = fail, "reports cannot be spooled: "+f.trouble.Error()
		out.Do = "make the directory writable, or name another one in XDG_STATE_HOME; until then an outcome that cannot be reported at once is lost"
	}
	return out
}

// spooledReports describes the files in the spool.
type spooledReports struct {
	waiting int
	aside   []string // files that no server accepts
}

func judgeSpool(dir string, s spooledReports) finding {
	f := finding{Check: "reports", Status: ok, Says: "no report is waiting", Facts: map[string]any{"waiting": s.waiting, "quarantined": len(s.aside)}}
	if s.waiting > 0 {
		f.Status, f.Says = warn, counted(s.waiting, "report waits", "reports wait")+" on this disk to be sent"
		f.Do = "run a command that reaches their server, as flightd flights ls; it sends them"
	}
	if n := len(s.aside); n > 0 {
		f.Status, f.Says = warn, fmt.Sprintf("%d waiting; %d quarantined, because no server accepts them: %s", s.waiting, n, strings.Join(s.aside[:min(n, 3)], ", "))
		f.Do = "read them in " + dir + ", resolve their flights by hand, then remove the files"
	}
	return f
}

// checkNodeSpool is about the reports spooled on the server's disk; checkSpool is about those on this machine's.
func judgeNodeSpool(data string, s wire.Spool) finding {
	f := finding{Check: "spool", Status: ok, Says: "no report waits on the server's disk for its ledger",
		Facts: map[string]any{"waiting": s.Waiting, "quarantined": s.PutAside}}
	if s.Waiting > 0 {
		f.Status, f.Says = warn, counted(s.Waiting, "report waits", "reports wait")+" on the server's disk for its ledger"
		f.Do = "keep that disk: the effects happened, and the ledger has not stored the reports yet; see the server's log"
	}
	if s.PutAside > 0 {
		f.Status, f.Says = warn, fmt.Sprintf("%d waiting on the server's disk; %d quarantined, because they cannot be read or their flights are not in its ledger", s.Waiting, s.PutAside)
		f.Do = "read " + filepath.Join(data, "ledger", "spool", "*.damaged") + " there, check with the provider whether the effects happened, resolve the flights, then remove the files"
	}
	return f
}

// serverAnswer is the result of connecting to one server.
type answer struct {
	address string
	err     error
}

func judgeAnswer(a answer, alone bool) finding {
	facts := map[string]any{"address": a.address}
	if a.err == nil {
		return finding{Check: "server", Status: ok, Says: a.address + " answers", Facts: facts}
	}
	f := finding{Check: "server", Status: warn, Says: a.address + " does not answer: " + a.err.Error(), Facts: facts,
		Do: "start it, or remove it from --server and FLIGHTD_ADDR"}
	switch {
	case !alone:
	case errors.Is(a.err, context.DeadlineExceeded) && !errors.Is(a.err, syscall.ECONNREFUSED):
		f.Status, f.Do = fail, "check the process at this address: it accepts connections but does not answer in time; it may be stopped or overloaded"
	default:
		f.Status, f.Do = fail, "start a server with flightd dev, or set the address of another one with --server or FLIGHTD_ADDR; nothing listens there"
	}
	return f
}

func judgeParts(checks []wire.Check) finding {
	var well, sick []string
	for _, c := range checks {
		if c.OK {
			well = append(well, c.Name)
		} else {
			sick = append(sick, c.Name+": "+c.Error)
		}
	}
	if len(sick) > 0 {
		return finding{Check: "parts", Status: fail, Says: "not ready: " + strings.Join(sick, "; "), Do: "see the server's log; nothing new starts until all components are ready"}
	}
	return finding{Check: "parts", Status: ok, Says: "ready: " + strings.Join(well, ", ")}
}

func judgeVersions(mine, theirs wire.Version) finding {
	f := finding{Check: "versions", Status: ok, Says: fmt.Sprintf("client and server are %s (API %s)", mine.Version, theirs.API),
		Facts: map[string]any{"client": mine.Version, "server": theirs.Version, "api": theirs.API, "client_go": mine.Go, "server_go": theirs.Go}}
	switch {
	case theirs.API != mine.API:
		f.Status, f.Says = fail, fmt.Sprintf("this program uses API %s, the server %s (%s)", mine.API, theirs.API, theirs.Version)
		f.Do = "use a flightd of the server's version"
	case theirs.Version == mine.Version:
	case theirs.Version == unknownVersion || mine.Version == unknownVersion:
		f.Says = fmt.Sprintf("client %s, server %s (API %s); a build without a version cannot be compared", mine.Version, theirs.Version, theirs.API)
	case sameCommit(mine.Version, theirs.Version):
		f.Says = fmt.Sprintf("client %s, server %s (API %s): the same commit", mine.Version, theirs.Version, theirs.API)
	default:
		f.Status, f.Says = warn, fmt.Sprintf("client %s, server %s", mine.Version, theirs.Version)
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

// doubts is how many flights in all namespaces are in doubt.
type doubts struct {
	count int
	more  bool // count is only one page of them
	err   error
}

func judgeDoubts(d doubts) finding {
	switch {
	case d.err != nil:
		return finding{Check: "doubts", Status: warn, Says: "the flights in doubt cannot be listed: " + d.err.Error(), Do: "see the server's log"}
	case d.count == 0:
		return finding{Check: "doubts", Status: ok, Says: "no flight is in doubt", Facts: map[string]any{"count": 0}}
	}
	says := counted(d.count, "flight is", "flights are") + " in doubt"
	if d.more {
		says = "at least " + says
	}
	return finding{Check: "doubts", Status: warn, Says: says + ": the effect may or may not have happened", Facts: map[string]any{"count": d.count},
		Do: "list them with flightd doubt ls -A, and resolve each with flightd doubt resolve"}
}

// Bounds for the difference of two clocks. Leases do not depend on wall clocks; only displayed times do.
const (
	clockFine = time.Second
	clockMost = time.Minute
)

func judgeClock(r clockReading, ledger time.Duration) finding {
	doubt := r.trip/2 + time.Millisecond // the server's time is in milliseconds
	certain := max(r.offset.Abs()-doubt, 0)
	f := finding{Check: "clock", Status: ok, Says: fmt.Sprintf("%s of the server's, give or take %s", ahead(-r.offset), short(doubt)),
		Facts: map[string]any{"offset_ms": millis(r.offset), "round_trip_ms": millis(r.trip), "ledger_offset_ms": millis(ledger)}}
	const why = "let NTP set the clock: histories, --since and retentions depend on it; leases do not"
	if certain == 0 {
		f.Says = "agrees with the server's, give or take " + short(doubt)
	}
	switch {
	case r.local.Year() < 2025:
		f.Status, f.Says, f.Do = fail, "it is "+r.local.UTC().Format(time.DateOnly)+" here", why
	case certain > clockMost:
		f.Status, f.Says, f.Do = fail, "this clock is "+ahead(-r.offset)+" of the server's", why
	case certain > clockFine:
		f.Status, f.Says, f.Do = warn, "this clock is "+ahead(-r.offset)+" of the server's", why
	case r.stepped.Abs() > 100*time.Millisecond:
		f.Status, f.Says, f.Do = warn, fmt.Sprintf("this clock was set by %s during the measurement", short(r.stepped)), why
	case ledger.Abs() > clockFine*5:
		f.Status, f.Says = warn, "the ledger's time is "+ahead(ledger)+" of its server's clock"
		f.Do = "wait: the ledger's time never jumps and is being slewed; retentions end by it"
	}
	return f
}

func ahead(d time.Duration) string {
	if d < 0 {
		return short(-d) + " behind"
	}
	return short(d) + " ahead"
}

// maxHistory bounds the usual number of revisions. The compactor keeps the last seconds, at most 100,000 revisions.
const longHistory = 500_000

func judgeEtcd(e *wire.Etcd) finding {
	if e == nil {
		return finding{Check: "etcd", Status: fail, Says: "etcd does not answer the server", Do: "see the server's log; no key can be claimed until etcd answers"}
	}
	history := e.Revision - e.Compacted
	f := finding{Check: "etcd", Status: ok,
		Says:  fmt.Sprintf("%s, compacted up to revision %d of %d, %s of %s in use", e.Version, e.Compacted, e.Revision, mib(e.InUse), mib(e.Quota)),
		Facts: map[string]any{"version": e.Version, "revision": e.Revision, "compacted": e.Compacted, "size": e.Size, "in_use": e.InUse, "quota": e.Quota}}
	switch {
	case e.Problem != "":
		f.Status, f.Says, f.Do = fail, e.Problem, "upgrade etcd before you rely on its leases"
	case e.Quota > 0 && e.InUse > e.Quota*8/10:
		f.Status, f.Says = fail, fmt.Sprintf("%s of %s are in use; at the quota etcd rejects new claims", mib(e.InUse), mib(e.Quota))
		f.Do = "see the server's log for why it is not compacted"
	case history > longHistory:
		f.Status, f.Says = warn, fmt.Sprintf("%s has %d revisions: its history is not compacted", e.Version, history)
		f.Do = "see the server's log; in an etcd of your own, set --auto-compaction-retention"
	case e.Quota > 0 && e.InUse > e.Quota*6/10:
		f.Status, f.Do = warn, "see the server's log for whether it is compacted: it is filling up"
	}
	return f
}

// checkLease compares the time of renewals with the slack. A renewal is sent after a third of the TTL; the slack is the
// time from then until the holder stops trusting its lease.
func judgeLease(ttl time.Duration, r renewals) finding {
	if r.err != nil {
		return finding{Check: "lease", Status: fail, Says: "a session could not be renewed: " + r.err.Error(), Do: "see the finding parts; no effect starts without a lease"}
	}
	slices.Sort(r.took)
	median, worst := r.took[len(r.took)/2], r.took[len(r.took)-1]
	slack := ttl - lease.Margin(ttl) - lease.RenewEvery(ttl)
	f := finding{Check: "lease", Status: ok,
		Says: fmt.Sprintf("renewed in %s, at worst %s; a TTL of %s leaves %s for a renewal", short(median), short(worst), ttl, short(slack)),
		Facts: map[string]any{"ttl_ms": ttl.Milliseconds(), "margin_ms": lease.Margin(ttl).Milliseconds(), "slack_ms": slack.Milliseconds(),
			"renewal_median_ms": millis(median), "renewal_worst_ms": millis(worst)}}
	const do = "give callers a longer --ttl, or find the cause: a slow network, a slow disk of etcd, or too few processors"
	switch {
	case worst > slack/2:
		f.Status, f.Do = fail, do
	case worst > slack/10:
		f.Status, f.Do = warn, do
	}
	return f
}

// Bounds for the time of a small synced write. A flight waits for three of them.
const (
	syncFine = 10 * time.Millisecond
	syncMost = 200 * time.Millisecond // reports go to the spool then
)

// diskReserve is the free space below which nothing new starts.
const diskReserve = 256 << 20

func judgeDisk(dir string, s syncs) finding {
	const room = "free some space: below 256 MiB nothing new starts, and on a full disk no receipt is stored"
	if errors.Is(s.err, syscall.ENOSPC) {
		return finding{Check: "disk", Status: fail, Says: s.err.Error(), Do: room}
	}
	if s.err != nil {
		return finding{Check: "disk", Status: warn, Says: fmt.Sprintf("measure %s: %v", dir, s.err), Do: "run flightd doctor as the owner of the directory"}
	}
	median, worst := s.took[len(s.took)/2], s.took[len(s.took)-1]
	f := finding{Check: "disk", Status: ok,
		Says:  fmt.Sprintf("%s syncs 4 KiB in %s, at worst %s; %s are free", dir, short(median), short(worst), mib(int64(s.free))),
		Facts: map[string]any{"data": dir, "fsync_median_ms": millis(median), "fsync_worst_ms": millis(worst), "free": s.free}}
	const slow = "move the data directory to a faster disk: every flight waits for three synced writes"
	switch {
	case s.free < diskReserve:
		f.Status, f.Do = fail, room
	case median > syncMost:
		f.Status, f.Do = fail, slow
	case median > syncFine || worst > syncMost:
		f.Status, f.Do = warn, slow
	case s.free < 1<<30:
		f.Status, f.Do = warn, room
	}
	return f
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shortDuration formats a duration with about three digits.
func short(d time.Duration) string {
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

func mib(b int64) string {
	if b >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(b)/(1<<20))
}
