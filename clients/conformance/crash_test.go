//go:build clients

package conformance

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

type wireFlight = wire.Flight

// serverKilledDuringEffect: flightd is killed and restarted during the effect. The effect continues, and its receipt is
// stored.
func serverKilledDuringEffect(t *trial) {
	t.useOwnServer()
	t.provider.block("/effect")
	p := t.driver().begin(t.call())
	t.provider.waitArrived(t, "/effect")
	t.server.kill()
	t.server.start()
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "executed")
	t.requireOneEffect(1)
	t.requireAnswer(t.driver().do(t.call()), "replayed")
}

// serverDownForThreeTTLs: flightd is killed during the effect and stays down for three times the session's TTL. The
// lease is lost and the flight in doubt, until the report ends the doubt.
func serverDownForThreeTTLs(t *trial) {
	t.useOwnServer()
	t.provider.block("/effect")
	p := t.driver(ttl(int(shortTTL / time.Second))).begin(t.call())
	t.provider.waitArrived(t, "/effect")
	t.server.kill()
	<-time.After(3 * shortTTL)
	t.server.start()
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "executed")
	t.requireOneEffect(1)
}

// deadCallerIsHeld: a caller is killed during the effect. The flight becomes in doubt without another call, and no
// caller acts.
func deadCallerIsHeld(t *trial) {
	t.provider.block("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call())
	t.provider.waitArrived(t, "/effect")
	d.signal(syscall.SIGKILL)
	t.provider.unblock("/effect")
	t.waitInDoubt()
	t.requireAnswer(t.driver().do(t.call()), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
}

// serverDownAtReport: flightd is down when the effect ends. The report waits on disk until flightd is up.
func serverDownAtReport(t *trial) {
	t.useOwnServer()
	t.provider.block("/effect")
	p := t.driver().begin(t.call())
	t.provider.waitArrived(t, "/effect")
	t.server.kill()
	t.provider.unblock("/effect")
	eventually(t, "the report is on disk", waitTimeout, func() bool { return len(t.spooled()) == 1 })
	t.server.start()
	t.requireAnswer(p.waitOne(), "executed")
	t.requireOneEffect(1)
	require.Empty(t, t.spooled())
}

// leaveUnrecorded executes an effect whose report no server stores. The report stays on disk.
func (t *trial) leaveUnrecorded(l language) *driver {
	t.Helper()
	t.useOwnServer()
	t.provider.block("/effect")
	s := t.setup()
	reportWait(300)(&s)
	d := newDriver(t.T, l, s)
	p := d.begin(t.call())
	t.provider.waitArrived(t, "/effect")
	t.server.kill()
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "unrecorded")
	require.Len(t, t.spooled(), 1)
	return d
}

// leaveSpooledReport kills the caller while its report is spooled, and then restarts flightd.
func (t *trial) leaveSpooledReport(l language) {
	t.Helper()
	t.leaveUnrecorded(l).signal(syscall.SIGKILL)
	t.server.start()
}

// spoolDeliveredByItself: a client that has returned Unrecorded continues to send the report.
func spoolDeliveredByItself(t *trial) {
	d := t.leaveUnrecorded(t.language)
	t.server.start()
	t.server.waitFlight(t.key, "has its receipt", waitTimeout, succeeded)
	eventually(t, "the spool is empty", waitTimeout, func() bool { return len(t.spooled()) == 0 })
	t.requireAnswer(d.do(t.call()), "replayed")
	t.requireOneEffect(1)
}

// requireDelivered checks that a client which calls another key delivers the spooled report.
func (t *trial) requireDelivered(l language) {
	t.Helper()
	require.NotEqual(t, "succeeded", t.flight().State)
	d := newDriver(t.T, l, t.setup())
	t.requireAnswer(d.do(t.call(func(c *call) { c.ID += "-other" })), "executed")
	t.provider.configure(func(p *provider) { p.charges = p.charges[:1] })
	t.server.waitFlight(t.key, "has its receipt", waitTimeout, succeeded)
	t.requireAnswer(d.do(t.call()), "replayed")
	t.requireOneEffect(1)
	eventually(t, "the spool is empty", waitTimeout, func() bool { return len(t.spooled()) == 0 })
}

// spoolDeliveredLater: the next process delivers the report of a dead process.
func spoolDeliveredLater(t *trial) {
	t.leaveSpooledReport(t.language)
	t.requireDelivered(t.language)
}

// spoolIsShared: a client of one language delivers the report of another language.
func spoolIsShared(t *trial) {
	goLanguage := languages()[0]
	t.leaveSpooledReport(goLanguage)
	t.requireDelivered(t.language)
	t.id, t.key, t.provider = t.id+"-back", t.key+"-back", newProvider(t.T)
	t.leaveSpooledReport(t.language)
	t.requireDelivered(goLanguage)
}

// spoolSkipsRejectedReport: a report that no server stores does not delay other reports, and an unreadable file is
// kept.
func spoolSkipsRejectedReport(t *trial) {
	takes := func(string) bool { return false }
	t.proxy.setFaults(func(path string) fault {
		if strings.HasSuffix(path, "/report") && !takes(path) {
			return fault{cut: true, own: true, canned: &cannedAnswer{503, "application/problem+json", `{"code":"internal","status":500,"retryable":true}`}}
		}
		return fault{}
	})
	require.NoError(t, os.Mkdir(filepath.Join(t.spool, "0.report"), 0o700)) // cannot be read, like a damaged file
	d := t.driver(reportWait(300))
	flights := map[string]string{} // by path of the report
	for _, n := range []string{"-a", "-b", "-c"} {
		t.requireAnswer(d.do(t.call(func(c *call) { c.ID += n })), "unrecorded")
		flights[t.server.flight(t.key+n).ID] = t.key + n
	}
	require.Len(t, t.spooled(), 4)
	first := t.reportIn(t.spooled()[1])
	t.proxy.mu.Lock()
	takes = func(path string) bool { return !strings.Contains(path, "/"+first+"/") }
	t.proxy.mu.Unlock()
	for id, key := range flights {
		if id != first {
			eventually(t, key+" has its receipt", waitTimeout, func() bool { return succeeded(t.server.flight(key)) })
		}
	}
	t.proxy.mu.Lock()
	takes = func(string) bool { return true }
	t.proxy.mu.Unlock()
	eventually(t, "the first report is delivered, too", waitTimeout, func() bool { return succeeded(t.server.flight(flights[first])) })
	eventually(t, "the spool is empty", waitTimeout, func() bool { return len(t.spooled()) == 1 })
}

// spoolSentByteForByte: a spooled report of any language is sent byte for byte. Decoding and encoding it could change a
// number, and so the receipt.
func spoolSentByteForByte(t *trial) {
	const body = `{"id":"ch_1", "number": 12345678901234567890, "ratio":1.0,"half":5e-1}`
	t.leaveSpooledReport(t.language)
	path := filepath.Join(t.spool, t.spooled()[0])
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var entry map[string]any
	require.NoError(t, json.Unmarshal(data[8:], &entry))
	var report struct {
		Token string `json:"fencing_token"`
	}
	left, err := base64.StdEncoding.DecodeString(entry["report"].(string))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(left, &report))
	entry["report"] = []byte(`{"fencing_token":"` + report.Token + `","outcome":"succeeded","body":` + body + `}`)
	text, err := json.Marshal(entry)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, spoolFile(text), 0o600))
	t.requireAnswer(t.driver().do(t.call(func(c *call) { c.ID += "-other" })), "executed")
	f := t.server.waitFlight(t.key, "has its receipt", waitTimeout, succeeded)
	require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(body))), f.Receipt.Digest)
}

// spoolOfALaterVersion: a report file of a later version is kept unchanged, logged and not sent: also if only a field
// of it is unknown.
func spoolOfALaterVersion(t *trial) {
	const entry = `{"deployment":"x","key":"default/charge/later","at":"2026-01-01T00:00:00Z","report":"e30=","sealed":true}`
	later := map[string]string{"0.report": "FDC2 and whatever that is", "1.report": string(spoolFile([]byte(entry)))}
	for name, text := range later {
		require.NoError(t, os.WriteFile(filepath.Join(t.spool, name), []byte(text), 0o600))
	}
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "executed")
	eventually(t, "both are logged", waitTimeout, func() bool { return strings.Count(d.log.String(), "a later version") >= len(later) })
	for name, text := range later {
		left, err := os.ReadFile(filepath.Join(t.spool, name))
		require.NoError(t, err)
		require.Equal(t, text, string(left))
	}
	require.Equal(t, []string{"0.report", "1.report"}, t.spooled())
	require.Equal(t, len(later), strings.Count(d.log.String(), "a later version"), "each is logged once")
	require.Len(t, t.proxy.requests("/report"), 1, "of the caller's own effect")
}

// spoolFile returns the bytes of a spool file.
func spoolFile(text []byte) []byte {
	sum := crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32([]byte("FDC1"), sum), text...)
}

// reportIn returns the flight id of a spooled report.
func (t *trial) reportIn(name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(t.spool, name))
	require.NoError(t, err)
	var entry struct{ Key string }
	require.NoError(t, json.Unmarshal(data[8:], &entry))
	return flight.MustKey(entry.Key).FlightID().String()
}

// diskFull: if the report cannot be written to disk, the process that holds it continues to send it.
func diskFull(t *trial) {
	t.useOwnServer()
	t.provider.block("/effect")
	s := t.setup()
	reportWait(300)(&s)
	d := newDriver(t.T, t.language, s)
	p := d.begin(t.call())
	t.provider.waitArrived(t, "/effect")
	require.NoError(t, os.RemoveAll(t.spool))
	require.NoError(t, os.WriteFile(t.spool, nil, 0o600))
	t.server.kill()
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "unrecorded")
	t.server.start()
	t.waitFlight("has its receipt", succeeded)
	t.requireAnswer(d.do(t.call()), "replayed")
	t.requireOneEffect(1)
}

// withholdReport executes an effect whose report is cut off by the proxy, while the server is up and the session is
// renewed.
func (t *trial) withholdReport() (d *driver, over func()) {
	t.Helper()
	over = t.proxy.failUntil("/report", fault{cut: true})
	d = t.driver(ttl(int(shortTTL/time.Second)), reportWait(300))
	t.requireAnswer(d.do(t.call()), "unrecorded")
	return d, over
}

// requireBlocked checks that a client with another spool may not act.
func (t *trial) requireBlocked() {
	t.Helper()
	other := t.driver(func(s *setup) { s.Spool, s.Address = t.TempDir(), t.server.address() })
	a := other.do(t.call(waitMS(int(3 * shortTTL / time.Millisecond))))
	require.Contains(t, []string{"in_doubt", "idempotency_in_flight"}, a.Error, "%+v", a)
}

// unrecordedIsNotAbandoned: an attempt whose report no server has stored is never abandoned, neither while another
// attempt of the same client keeps the session renewed, nor by a later attempt.
func unrecordedIsNotAbandoned(t *trial) {
	d, over := t.withholdReport()
	t.provider.block("/effect")
	second := d.begin(t.call(func(c *call) { c.ID += "-second" }))
	t.provider.waitArrived(t, "/effect")
	t.requireBlocked()
	over()
	t.provider.unblock("/effect")
	t.requireAnswer(second.waitOne(), "executed")
	t.waitFlight("has its receipt", succeeded)
	t.requireAnswer(d.do(t.call()), "replayed")
	require.Len(t, t.providerRequests(), 2, "one for each key")
}

// unrecordedAfterClientExit: nor does the end of the process abandon it. The next client delivers the report.
func unrecordedAfterClientExit(t *trial) {
	d, over := t.withholdReport()
	require.NoError(t, d.in.Close())
	t.requireBlocked()
	over()
	t.requireAnswer(t.driver().do(t.call(func(c *call) { c.ID += "-other" })), "executed")
	t.waitFlight("has its receipt", succeeded)
	require.Len(t, t.providerRequests(), 2, "one for each key")
}

// serverDataLost: flightd loses its data and starts as another deployment. A running client does not act there; a new
// one does.
func serverDataLost(t *trial) {
	t.useOwnServer()
	d := t.driver()
	t.requireAnswer(d.do(t.call(func(c *call) { c.ID += "-before" })), "executed")
	t.server.resetData()
	t.requireTurnedAway(d.do(t.call()))
	t.requireAnswer(t.driver().do(t.call()), "executed")
	t.requireTurnedAway(d.do(t.call()))
	require.Len(t, t.providerRequests(), 2, "one for each key")
}

// serverDataLostDuringEffect: a report stays in the spool if another deployment answers.
func serverDataLostDuringEffect(t *trial) {
	t.useOwnServer()
	t.provider.block("/effect")
	p := t.driver(reportWait(300)).begin(t.call())
	t.provider.waitArrived(t, "/effect")
	t.server.resetData()
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "unrecorded")
	require.Len(t, t.spooled(), 1)
}

const shortTTL = 3 * time.Second

// freeze stops a driver for three times its session's TTL and calls meanwhile.
func (t *trial) freeze(d *driver, meanwhile func()) {
	t.Helper()
	over := time.NewTimer(3 * shortTTL)
	defer over.Stop()
	d.signal(syscall.SIGSTOP)
	meanwhile()
	<-over.C
	d.signal(syscall.SIGCONT)
}

func (t *trial) waitInDoubt() {
	t.Helper()
	t.server.waitFlight(t.key, "is in doubt", waitTimeout, inDoubt)
}

// frozenBeforeEffectHold: a caller that was frozen before its effect starts nothing and removes its doubt by an
// abandon.
func frozenBeforeEffectHold(t *trial) {
	t.provider.block("/before")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call(t.pausedBefore))
	t.provider.waitArrived(t, "/before")
	t.freeze(d, t.waitInDoubt)
	t.provider.unblock("/before")
	t.requireAnswer(p.waitOne(), "lease_lost")
	require.Empty(t, t.providerRequests())
	f := t.flight()
	require.Equal(t, "ready", f.State)
	require.False(t, f.Tainted)
	t.requireAnswer(t.driver().do(t.call()), "executed")
	t.requireOneEffect(2)
}

// frozenInEffectHold: the report of a caller that was frozen during its effect ends the doubt.
func frozenInEffectHold(t *trial) {
	t.provider.block("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call())
	t.provider.waitArrived(t, "/effect")
	t.freeze(d, t.waitInDoubt)
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "executed")
	require.Empty(t, t.requireOneEffect(1).Evidence)
}

// longWindow sets a provider window that is far longer than the test.
func longWindow(c *call) { c.ProviderWindowMS = 3_600_000 }

// resendWindowOver: a resend that was allowed within the provider's window does not start after it.
func resendWindowOver(t *trial) {
	const span = 5 * time.Second
	short := func(c *call) { c.Recovery, c.ProviderWindowMS = "resend", int(span/time.Millisecond) }
	t.provider.configure(func(p *provider) { p.status = []int{500} })
	d := t.driver()
	t.requireAnswer(d.do(t.call(short)), "unknown")
	t.provider.block("/before")
	p := d.begin(t.call(short, t.pausedBefore))
	t.provider.waitArrived(t, "/before")
	<-time.After(span)
	t.provider.unblock("/before")
	t.requireAnswer(p.waitOne(), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
}

// frozenBeforeEffectResend: under resend another caller acts while the holder is frozen before its effect. The holder
// starts nothing.
func frozenBeforeEffectResend(t *trial) {
	t.provider.block("/before")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call(t.pausedBefore, recovery("resend"), longWindow))
	t.provider.waitArrived(t, "/before")
	t.freeze(d, func() { t.requireAnswer(t.driver().do(t.call(recovery("resend"), longWindow)), "executed") })
	t.provider.unblock("/before")
	t.requireAnswer(p.waitOne(), "replayed")
	require.Len(t, t.providerRequests(), 1)
	t.requireOneEffect(2)
}

// frozenInEffectResend: under resend another caller acts while the holder is frozen during its effect. The provider
// deduplicates by the key: one effect. The holder's report is fenced, and the holder gets the receipt.
func frozenInEffectResend(t *trial) {
	t.provider.configure(func(p *provider) { p.honour = true })
	t.provider.block("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call(recovery("resend"), longWindow))
	t.provider.waitArrived(t, "/effect")
	t.freeze(d, func() {
		other := t.driver().begin(t.call(recovery("resend"), longWindow))
		eventually(t, "the other one acts", waitTimeout, func() bool { return len(t.providerRequests()) == 2 })
		t.provider.unblock("/effect")
		t.requireAnswer(other.waitOne(), "executed")
	})
	t.requireAnswer(p.waitOne(), "replayed")
	asked := t.providerRequests()
	require.Equal(t, asked[0].key, asked[1].key)
	require.Less(t, asked[0].token, asked[1].token)
	require.Equal(t, asked[0].input, asked[1].input, "a resend sends the exact bytes of the first attempt")
	t.waitFlight("keeps the fenced report", func(f wireFlight) bool { return len(f.Evidence) == 1 }) // a follower may still show the final flight without it
	t.requireOneEffect(2)
}

// withLookup configures a call with a look-up.
func (t *trial) withLookup(c *call) {
	c.Recovery, c.Look, c.SettleMS, c.AttemptTimeoutMS = "verify", t.provider.url+"/look", 200, 30_000
}

// verifyOwnUnknownOutcome: the provider acts and drops the connection. The same call looks the effect up and gets the
// receipt.
func verifyOwnUnknownOutcome(t *trial) {
	t.provider.configure(func(p *provider) { p.dropConnection = true })
	a := t.driver().do(t.call(t.withLookup))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "ch_1", t.value(a).ID)
	require.Equal(t, "ch_1", a.ExternalID)
	require.Equal(t, "lookup", t.requireOneEffect(1).Receipt.From)
	t.requireAnswer(t.driver().do(t.call(t.withLookup)), "replayed")
}

// verifyDeadHolderHappened: a caller dies during its effect. The next caller is asked to verify, and finds the effect.
func verifyDeadHolderHappened(t *trial) {
	t.provider.block("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call(t.withLookup))
	t.provider.waitArrived(t, "/effect")
	d.signal(syscall.SIGKILL)
	t.provider.unblock("/effect")
	a := t.driver().do(t.call(t.withLookup))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "ch_1", t.value(a).ID)
	require.Len(t, t.providerRequests(), 1)
	t.requireOneEffect(1)
}

// verifyDeadHolderDidNot: a caller dies before its effect. The next caller is asked to verify, finds nothing, and acts.
func verifyDeadHolderDidNot(t *trial) {
	t.provider.block("/before")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call(t.withLookup, t.pausedBefore))
	t.provider.waitArrived(t, "/before")
	d.signal(syscall.SIGKILL)
	t.provider.unblock("/before")
	t.requireAnswer(t.driver().do(t.call(t.withLookup)), "executed")
	require.Len(t, t.providerRequests(), 1)
	t.requireOneEffect(2)
}

// policyAfterLookUp: a caller whose own policy has no time-out is bound by that of the flight's first caller, also after it was asked to
// verify: when that time is over, another caller may act.
func policyAfterLookUp(t *trial) {
	t.provider.block("/before")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call(t.withLookup, t.pausedBefore, attemptTimeout(3000)))
	t.provider.waitArrived(t, "/before")
	d.signal(syscall.SIGKILL)
	other := t.driver().begin(t.call(t.withLookup, t.pausedBefore, attemptTimeout(0), waitMS(10_000)))
	eventually(t, "the next caller has looked it up and goes on", waitTimeout, func() bool { return t.provider.requestCount("/before") == 2 })
	<-time.After(3500 * time.Millisecond)
	t.provider.unblock("/before")
	require.NotEmpty(t, other.waitOne().Error)
	require.Empty(t, t.providerRequests())
}

func attemptTimeout(ms int) func(*call) { return func(c *call) { c.AttemptTimeoutMS = ms } }

// lookUpFindsNothingOutAtFirst: the look-up is repeated until the provider answers it.
func lookUpFindsNothingOutAtFirst(t *trial) {
	t.provider.configure(func(p *provider) { p.dropConnection, p.lookUpsFail = true, 2 })
	a := t.driver().do(t.call(t.withLookup))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "ch_1", t.value(a).ID)
	require.Equal(t, 3, t.provider.requestCount("/look"))
	require.Len(t, t.providerRequests(), 1)
}

// proceedsAlwaysTooLate: when each answer comes after the time-out of its attempt, the call ends with an error, however long it may wait.
func proceedsAlwaysTooLate(t *trial) {
	t.proxy.setFaults(func(path string) fault {
		if strings.HasSuffix(path, ":open") {
			return fault{delay: 200 * time.Millisecond}
		}
		return fault{}
	})
	a := t.driver().do(t.call(attemptTimeout(50), waitMS(600_000)))
	require.Contains(t, []string{"not_done", "lease_lost"}, a.Error, a.Detail)
	require.Len(t, t.proxy.requests(":open"), 6)
	require.Empty(t, t.providerRequests())
}

// slowLookup: a look-up may take longer than the session's TTL. The session is renewed, and no other caller verifies.
func slowLookup(t *trial) {
	t.provider.configure(func(p *provider) { p.dropConnection = true })
	t.provider.block("/look")
	first := t.driver(ttl(5)).begin(t.call(t.withLookup))
	t.provider.waitArrived(t, "/look")
	other := t.driver(ttl(5)).begin(t.call(t.withLookup))
	<-time.After(12 * time.Second)
	t.provider.unblock("/look")
	for _, p := range []*pending{first, other} {
		a := p.waitOne()
		require.Empty(t, a.Error, a.Detail)
	}
	require.Equal(t, 1, t.provider.requestCount("/look"))
	require.Len(t, t.providerRequests(), 1)
	t.requireOneEffect(1)
}

// callerWithoutLookupAbandons: a caller that is asked to verify and has no look-up abandons, so that another caller can
// verify.
func callerWithoutLookupAbandons(t *trial) {
	t.provider.block("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call(t.withLookup))
	t.provider.waitArrived(t, "/effect")
	d.signal(syscall.SIGKILL)
	t.provider.unblock("/effect")
	t.requireAnswer(t.driver(ttl(60)).do(t.call()), "in_doubt")
	a := t.driver().do(t.call(t.withLookup, waitMS(10_000)))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "ch_1", t.value(a).ID)
	t.requireOneEffect(1)
}
