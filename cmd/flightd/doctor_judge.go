package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/flightd/flightd/internal/wire"
	"github.com/flightd/flightd/lease"
)

// This file is the doctor's knowledge: pure functions from what was measured to what it means.

// folders are the places of a person.
type folders struct {
	config      string
	configThere bool
	spool       string
	trouble     error // with the spool
}

func judgeFolders(f folders) finding {
	says := "settings " + f.config
	switch {
	case f.config == "":
		says = "settings nowhere (neither HOME nor XDG_CONFIG_HOME is set)"
	case !f.configThere:
		says += " (none, which is fine)"
	}
	out := finding{Check: "folders", Status: ok, Says: says + ", reports " + f.spool, Facts: map[string]any{"config": f.config, "reports": f.spool}}
	if f.trouble != nil {
		out.Status, out.Says = fail, "reports could not be kept: "+f.trouble.Error()
		out.Do = "make the folder yours, or name another one in XDG_STATE_HOME; until then an outcome that cannot be reported at once is lost"
	}
	return out
}

// spooledReports is what lies in the spool.
type spooledReports struct {
	waiting int
	aside   []string // files that no server will take
}

func judgeSpool(dir string, s spooledReports) finding {
	f := finding{Check: "reports", Status: ok, Says: "none waits to be reported", Facts: map[string]any{"waiting": s.waiting, "put_aside": len(s.aside)}}
	if s.waiting > 0 {
		f.Status, f.Says = warn, counted(s.waiting, "outcome waits", "outcomes wait")+" on this disk for a server to take them"
		f.Do = "the next command that reaches their server brings them: flightd flights ls"
	}
	if n := len(s.aside); n > 0 {
		f.Status, f.Says = warn, fmt.Sprintf("%d waiting; %d were put aside, since no server takes them: %s", s.waiting, n, strings.Join(s.aside[:min(n, 3)], ", "))
		f.Do = "look at them in " + dir + ", settle their flights by hand, then remove the files"
	}
	return f
}

// judgeNodeSpool is about the reports on the server's disk, where judgeSpool is about those on this one.
func judgeNodeSpool(data string, s wire.Spool) finding {
	f := finding{Check: "spool", Status: ok, Says: "none waits on the server's disk for its ledger",
		Facts: map[string]any{"waiting": s.Waiting, "put_aside": s.PutAside}}
	if s.Waiting > 0 {
		f.Status, f.Says = warn, counted(s.Waiting, "report waits", "reports wait")+" on the server's disk for its ledger"
		f.Do = "keep that disk: their effects happened, and the ledger does not know it yet; the server's log says more"
	}
	if s.PutAside > 0 {
		f.Status, f.Says = warn, fmt.Sprintf("%d waiting on the server's disk; %d were put aside, since they cannot be read or are of flights that its ledger does not know", s.Waiting, s.PutAside)
		f.Do = "look at " + filepath.Join(data, "ledger", "spool", "*.damaged") + " there, find out what became of these effects, settle their flights, then remove the files"
	}
	return f
}

// answer is what came of calling a server.
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
		Do: "start it, or take it out of --server and FLIGHTD_ADDR"}
	switch {
	case !alone:
	case errors.Is(a.err, context.DeadlineExceeded) && !errors.Is(a.err, syscall.ECONNREFUSED):
		f.Status, f.Do = fail, "something has this address and does not answer in time: see in its log, and whether its process is stopped or its machine too busy"
	default:
		f.Status, f.Do = fail, "no flightd runs there: flightd dev starts one; --server or FLIGHTD_ADDR says where another one is"
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
		return finding{Check: "parts", Status: fail, Says: "not ready: " + strings.Join(sick, "; "), Do: "nothing new starts until they are; the server's log says more"}
	}
	return finding{Check: "parts", Status: ok, Says: "ready: " + strings.Join(well, ", ")}
}

func judgeVersions(mine, theirs wire.Version) finding {
	f := finding{Check: "versions", Status: ok, Says: fmt.Sprintf("client and server are %s (API %s)", mine.Version, theirs.API),
		Facts: map[string]any{"client": mine.Version, "server": theirs.Version, "api": theirs.API, "client_go": mine.Go, "server_go": theirs.Go}}
	switch {
	case theirs.API != mine.API:
		f.Status, f.Says = fail, fmt.Sprintf("this program speaks API %s, the server %s (%s)", mine.API, theirs.API, theirs.Version)
		f.Do = "take a flightd of the server's version"
	case theirs.Version != mine.Version:
		f.Status, f.Says = warn, fmt.Sprintf("client %s, server %s", mine.Version, theirs.Version)
		f.Do = "they understand each other; restart the server with this program, or take the server's, so that messages and manual fit"
	}
	return f
}

// What clocks may differ by. No lease is judged by them, so this is about what people read.
const (
	clockFine = time.Second
	clockMost = time.Minute
)

func judgeClock(r clockReading, ledger time.Duration) finding {
	doubt := r.trip/2 + time.Millisecond // the server tells milliseconds
	certain := max(r.offset.Abs()-doubt, 0)
	f := finding{Check: "clock", Status: ok, Says: fmt.Sprintf("%s of the server's, give or take %s", ahead(-r.offset), short(doubt)),
		Facts: map[string]any{"offset_ms": millis(r.offset), "round_trip_ms": millis(r.trip), "ledger_offset_ms": millis(ledger)}}
	const why = "leases do not depend on it, but times in histories, --since and retentions do: let NTP set the clock"
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
		f.Status, f.Says, f.Do = warn, fmt.Sprintf("somebody set this clock by %s while we looked", short(r.stepped)), why
	case ledger.Abs() > clockFine*5:
		f.Status, f.Says = warn, "the ledger's time is "+ahead(ledger)+" of its server's clock"
		f.Do = "it never jumps and is being slewed; retentions end by it"
	}
	return f
}

func ahead(d time.Duration) string {
	if d < 0 {
		return short(-d) + " behind"
	}
	return short(d) + " ahead"
}

// The longest history that is usual: the compactor keeps the last seconds, a hundred thousand revisions at most.
const longHistory = 500_000

func judgeEtcd(e *wire.Etcd) finding {
	if e == nil {
		return finding{Check: "etcd", Status: fail, Says: "it does not answer the server", Do: "nothing can be claimed until it does; the server's log says more"}
	}
	history := e.Revision - e.Compacted
	f := finding{Check: "etcd", Status: ok,
		Says:  fmt.Sprintf("%s, compacted up to revision %d of %d, %s of %s in use", e.Version, e.Compacted, e.Revision, mib(e.InUse), mib(e.Quota)),
		Facts: map[string]any{"version": e.Version, "revision": e.Revision, "compacted": e.Compacted, "size": e.Size, "in_use": e.InUse, "quota": e.Quota}}
	switch {
	case e.Problem != "":
		f.Status, f.Says, f.Do = fail, e.Problem, "update etcd before you trust a lease"
	case e.Quota > 0 && e.InUse > e.Quota*8/10:
		f.Status, f.Says = fail, fmt.Sprintf("%s of %s are in use: soon it takes no more claims", mib(e.InUse), mib(e.Quota))
		f.Do = "see in the server's log why it is not compacted"
	case history > longHistory:
		f.Status, f.Says = warn, fmt.Sprintf("%s keeps %d revisions: its history is not compacted", e.Version, history)
		f.Do = "see in the server's log why; of an etcd of your own, set --auto-compaction-retention"
	case e.Quota > 0 && e.InUse > e.Quota*6/10:
		f.Status, f.Do = warn, "it fills up: see in the server's log whether it is compacted"
	}
	return f
}

// judgeLease holds renewals against the time that a lease leaves them. A renewal is sent when a third of the TTL is
// over; what then remains until the holder stops to believe in its lease is the slack.
func judgeLease(ttl time.Duration, r renewals) finding {
	if r.err != nil {
		return finding{Check: "lease", Status: fail, Says: "a session could not be kept: " + r.err.Error(), Do: "no effect starts without a lease; look at the line about parts"}
	}
	slices.Sort(r.took)
	median, worst := r.took[len(r.took)/2], r.took[len(r.took)-1]
	slack := ttl - lease.Margin(ttl) - lease.RenewEvery(ttl)
	f := finding{Check: "lease", Status: ok,
		Says: fmt.Sprintf("renewed in %s, at worst %s; a TTL of %s leaves %s for it", short(median), short(worst), ttl, short(slack)),
		Facts: map[string]any{"ttl_ms": ttl.Milliseconds(), "margin_ms": lease.Margin(ttl).Milliseconds(), "slack_ms": slack.Milliseconds(),
			"renewal_median_ms": millis(median), "renewal_worst_ms": millis(worst)}}
	const do = "give callers a longer --ttl, or find out what is slow: the network, the disk of etcd, or too few processors"
	switch {
	case worst > slack/2:
		f.Status, f.Do = fail, do
	case worst > slack/10:
		f.Status, f.Do = warn, do
	}
	return f
}

// What a disk may take for a small synced write. A flight waits for three of them.
const (
	syncFine = 10 * time.Millisecond
	syncMost = 200 * time.Millisecond // then reports go to the spool
)

// diskReserve is what must be free for anything new to start.
const diskReserve = 256 << 20

func judgeDisk(dir string, s syncs) finding {
	const room = "make room: below 256 MiB nothing new starts, and on a full disk no receipt is written"
	if errors.Is(s.err, syscall.ENOSPC) {
		return finding{Check: "disk", Status: fail, Says: s.err.Error(), Do: room}
	}
	if s.err != nil {
		return finding{Check: "disk", Status: warn, Says: fmt.Sprintf("%s could not be measured: %v", dir, s.err), Do: "run flightd doctor as the user whose directory it is"}
	}
	median, worst := s.took[len(s.took)/2], s.took[len(s.took)-1]
	f := finding{Check: "disk", Status: ok,
		Says:  fmt.Sprintf("%s syncs 4 KiB in %s, at worst %s; %s are free", dir, short(median), short(worst), mib(int64(s.free))),
		Facts: map[string]any{"data": dir, "fsync_median_ms": millis(median), "fsync_worst_ms": millis(worst), "free": s.free}}
	const slow = "every flight waits for three synced writes: put the data directory on a quicker disk"
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

// short is a duration as a person reads it: three digits.
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
