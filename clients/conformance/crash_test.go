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
	"github.com/flightd/flightd/internal/wire"
)

type wireFlight = wire.Flight

// flightd is killed in the middle of the effect and comes back: the effect is not bothered, and its receipt is stored.
func killedInMidEffect(t *trial) {
	t.moveOut()
	t.provider.shut("/effect")
	p := t.driver().begin(t.call())
	t.provider.arrived(t, "/effect")
	t.house.kill()
	t.house.start()
	t.provider.open("/effect")
	t.got(p.one(), "executed")
	t.landed(1)
	t.got(t.driver().do(t.call()), "replayed")
}

// flightd is killed in the middle of the effect and stays away for three times the caller's time to live. The lease is
// gone, and what was concluded from that gives way to the outcome.
func awayForThreeTTLs(t *trial) {
	t.moveOut()
	t.provider.shut("/effect")
	p := t.driver(ttl(int(shortTTL / time.Second))).begin(t.call())
	t.provider.arrived(t, "/effect")
	t.house.kill()
	<-time.After(3 * shortTTL)
	t.house.start()
	t.provider.open("/effect")
	t.got(p.one(), "executed")
	t.landed(1)
}

// A caller is killed in mid-effect: the flight becomes a doubt without anybody asking, and nobody acts again.
func deadCallerIsHeld(t *trial) {
	t.provider.shut("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call())
	t.provider.arrived(t, "/effect")
	d.signal(syscall.SIGKILL)
	t.provider.open("/effect")
	t.isInDoubt()
	t.got(t.driver().do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
}

// flightd is away when the effect ends: its report waits for it.
func awayAtTheEnd(t *trial) {
	t.moveOut()
	t.provider.shut("/effect")
	p := t.driver().begin(t.call())
	t.provider.arrived(t, "/effect")
	t.house.kill()
	t.provider.open("/effect")
	eventually(t, "the report is on disk", patience, func() bool { return len(t.spooled()) == 1 })
	t.house.start()
	t.got(p.one(), "executed")
	t.landed(1)
	require.Empty(t, t.spooled())
}

// unrecorded has an effect happen whose report nobody takes. The report stays on disk.
func (t *trial) unrecorded(l language) *driver {
	t.Helper()
	t.moveOut()
	t.provider.shut("/effect")
	s := t.setup()
	reportWait(300)(&s)
	d := newDriver(t.T, l, s)
	p := d.begin(t.call())
	t.provider.arrived(t, "/effect")
	t.house.kill()
	t.provider.open("/effect")
	t.got(p.one(), "unrecorded")
	require.Len(t, t.spooled(), 1)
	return d
}

// leaveReport kills the caller while its report waits on disk, and then brings flightd back.
func (t *trial) leaveReport(l language) {
	t.Helper()
	t.unrecorded(l).signal(syscall.SIGKILL)
	t.house.start()
}

// A caller that was told that its outcome is not recorded yet goes on to report it.
func spoolDeliveredByItself(t *trial) {
	d := t.unrecorded(t.language)
	t.house.start()
	t.house.until(t.key, "has its receipt", patience, succeeded)
	eventually(t, "the spool is empty", patience, func() bool { return len(t.spooled()) == 0 })
	t.got(d.do(t.call()), "replayed")
	t.landed(1)
}

// delivered says that the report has come home, by somebody who had something else to do.
func (t *trial) delivered(l language) {
	t.Helper()
	require.NotEqual(t, "succeeded", t.flight().State)
	d := newDriver(t.T, l, t.setup())
	t.got(d.do(t.call(func(c *call) { c.ID += "-other" })), "executed")
	t.provider.set(func(p *provider) { p.charges = p.charges[:1] })
	t.house.until(t.key, "has its receipt", patience, succeeded)
	t.got(d.do(t.call()), "replayed")
	t.landed(1)
	eventually(t, "the spool is empty", patience, func() bool { return len(t.spooled()) == 0 })
}

// A report that was left on disk by a process that is dead is delivered by the next one.
func spoolDeliveredLater(t *trial) {
	t.leaveReport(t.language)
	t.delivered(t.language)
}

// All languages share the spool: what one left another delivers.
func spoolIsShared(t *trial) {
	goLanguage := languages()[0]
	t.leaveReport(goLanguage)
	t.delivered(t.language)
	t.id, t.key, t.provider = t.id+"-back", t.key+"-back", newProvider(t.T)
	t.leaveReport(t.language)
	t.delivered(goLanguage)
}

// One report that no server takes now keeps no other one waiting, and what cannot be read now is left where it is.
func spoolGoesOn(t *trial) {
	takes := func(string) bool { return false }
	t.proxy.always(func(path string) fault {
		if strings.HasSuffix(path, "/report") && !takes(path) {
			return fault{cut: true, page: &page{503, "application/problem+json", `{"code":"internal","status":500,"retryable":true}`}}
		}
		return fault{}
	})
	require.NoError(t, os.Mkdir(filepath.Join(t.spool, "0.report"), 0o700)) // as good as a file that cannot be opened
	d := t.driver(reportWait(300))
	flights := map[string]string{} // by path of the report
	for _, n := range []string{"-a", "-b", "-c"} {
		t.got(d.do(t.call(func(c *call) { c.ID += n })), "unrecorded")
		flights[t.house.flight(t.key+n).ID] = t.key + n
	}
	require.Len(t, t.spooled(), 4)
	first := t.reportIn(t.spooled()[1])
	t.proxy.mu.Lock()
	takes = func(path string) bool { return !strings.Contains(path, "/"+first+"/") }
	t.proxy.mu.Unlock()
	for id, key := range flights {
		if id != first {
			eventually(t, key+" has its receipt", patience, func() bool { return succeeded(t.house.flight(key)) })
		}
	}
	t.proxy.mu.Lock()
	takes = func(string) bool { return true }
	t.proxy.mu.Unlock()
	eventually(t, "the first one, too", patience, func() bool { return succeeded(t.house.flight(flights[first])) })
	eventually(t, "the spool is empty", patience, func() bool { return len(t.spooled()) == 1 })
}

// A report goes out byte for byte as it was left, whoever left it: read and written again, a number may become another one,
// and the receipt with it.
func spoolIsSentAsItIs(t *trial) {
	const body = `{"id":"ch_1", "number": 12345678901234567890, "ratio":1.0,"half":5e-1}`
	t.leaveReport(t.language)
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
	sum := crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
	require.NoError(t, os.WriteFile(path, append(binary.BigEndian.AppendUint32([]byte("FDC1"), sum), text...), 0o600))
	t.got(t.driver().do(t.call(func(c *call) { c.ID += "-other" })), "executed")
	f := t.house.until(t.key, "has its receipt", patience, succeeded)
	require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(body))), f.Receipt.Digest)
}

// A report that a later version has written is left as it is, and is told of.
func spoolOfALaterVersion(t *trial) {
	const later = "FDC2 and whatever that is"
	path := filepath.Join(t.spool, "0.report")
	require.NoError(t, os.WriteFile(path, []byte(later), 0o600))
	d := t.driver()
	t.got(d.do(t.call()), "executed")
	eventually(t, "it is told of", patience, func() bool { return strings.Contains(d.log.String(), "a later version") })
	left, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, later, string(left))
	require.Equal(t, []string{"0.report"}, t.spooled())
}

// reportIn is the flight's id of a report on disk.
func (t *trial) reportIn(name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(t.spool, name))
	require.NoError(t, err)
	var entry struct{ Key string }
	require.NoError(t, json.Unmarshal(data[8:], &entry))
	return flight.MustKey(entry.Key).FlightID().String()
}

// Where the disk takes no report, the process that has it goes on to bring it.
func diskTakesNothing(t *trial) {
	t.moveOut()
	t.provider.shut("/effect")
	s := t.setup()
	reportWait(300)(&s)
	d := newDriver(t.T, t.language, s)
	p := d.begin(t.call())
	t.provider.arrived(t, "/effect")
	require.NoError(t, os.RemoveAll(t.spool))
	require.NoError(t, os.WriteFile(t.spool, nil, 0o600))
	t.house.kill()
	t.provider.open("/effect")
	t.got(p.one(), "unrecorded")
	t.house.start()
	t.until("has its receipt", succeeded)
	t.got(d.do(t.call()), "replayed")
	t.landed(1)
}

// withheld has an effect happen whose report nobody takes, although the server is well and the session lives.
func (t *trial) withheld() (d *driver, over func()) {
	t.Helper()
	over = t.proxy.until("/report", fault{cut: true})
	d = t.driver(ttl(int(shortTTL/time.Second)), reportWait(300))
	t.got(d.do(t.call()), "unrecorded")
	return d, over
}

// notActedOn says that somebody else, who has no part in the spool, is not let through.
func (t *trial) notActedOn() {
	t.Helper()
	other := t.driver(func(s *setup) { s.Spool, s.Address = t.TempDir(), t.house.address() })
	a := other.do(t.call(waitMS(int(3 * shortTTL / time.Millisecond))))
	require.Contains(t, []string{"in_doubt", "idempotency_in_flight"}, a.Error, "%+v", a)
}

// An attempt whose outcome no server has taken is never given back as if nothing had been sent, however long that lasts: not
// beside another attempt of the same client, which is in the air and renewed, and not by one that begins later.
func unrecordedIsNotLetGo(t *trial) {
	d, over := t.withheld()
	t.provider.shut("/effect")
	neighbour := d.begin(t.call(func(c *call) { c.ID += "-neighbour" }))
	t.provider.arrived(t, "/effect")
	t.notActedOn()
	over()
	t.provider.open("/effect")
	t.got(neighbour.one(), "executed")
	t.until("has its receipt", succeeded)
	t.got(d.do(t.call()), "replayed")
	require.Len(t, t.asked(), 2, "one for each key")
}

// Nor by the end of the client or of its process. Its report is delivered by whoever comes next.
func unrecordedAndGone(t *trial) {
	d, over := t.withheld()
	require.NoError(t, d.in.Close())
	t.notActedOn()
	over()
	t.got(t.driver().do(t.call(func(c *call) { c.ID += "-other" })), "executed")
	t.until("has its receipt", succeeded)
	require.Len(t, t.asked(), 2, "one for each key")
}

// The data is lost under a running client, and another deployment answers. The client does nothing there; the next one does.
func wiped(t *trial) {
	t.moveOut()
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.ID += "-before" })), "executed")
	t.house.wipe()
	t.got(d.do(t.call()), "wrong_deployment")
	t.got(t.driver().do(t.call()), "executed")
	t.got(d.do(t.call()), "wrong_deployment")
	require.Len(t, t.asked(), 2, "one for each key")
}

// A report that meets another deployment waits for its own.
func wipedInMidEffect(t *trial) {
	t.moveOut()
	t.provider.shut("/effect")
	p := t.driver(reportWait(300)).begin(t.call())
	t.provider.arrived(t, "/effect")
	t.house.wipe()
	t.provider.open("/effect")
	t.got(p.one(), "unrecorded")
	require.Len(t, t.spooled(), 1)
}

const shortTTL = 3 * time.Second

// freeze stops a driver for three times its time to live. meanwhile is what others do.
func (t *trial) freeze(d *driver, meanwhile func()) {
	t.Helper()
	over := time.NewTimer(3 * shortTTL)
	defer over.Stop()
	d.signal(syscall.SIGSTOP)
	meanwhile()
	<-over.C
	d.signal(syscall.SIGCONT)
}

func (t *trial) isInDoubt() { t.Helper(); t.house.until(t.key, "is in doubt", patience, inDoubt) }

// A holder that was frozen before its effect starts nothing, and takes back the doubt that it left: nothing was sent.
func frozenBeforeEffectHold(t *trial) {
	t.provider.shut("/before")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call(t.pausedBefore))
	t.provider.arrived(t, "/before")
	t.freeze(d, t.isInDoubt)
	t.provider.open("/before")
	t.got(p.one(), "lease_lost")
	require.Empty(t, t.asked())
	f := t.flight()
	require.Equal(t, "queued", f.State)
	require.False(t, f.Tainted)
	t.got(t.driver().do(t.call()), "executed")
	t.landed(2)
}

// A holder that was frozen in mid-effect settles its own doubt.
func frozenInEffectHold(t *trial) {
	t.provider.shut("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call())
	t.provider.arrived(t, "/effect")
	t.freeze(d, t.isInDoubt)
	t.provider.open("/effect")
	t.got(p.one(), "executed")
	require.Empty(t, t.landed(1).Evidence)
}

// window is far longer than the test: the provider remembers our key.
func window(c *call) { c.ProviderWindowMS = 3_600_000 }

// A resend that was allowed while the provider surely knew the key does not start when that is over.
func windowIsOver(t *trial) {
	const span = 5 * time.Second
	short := func(c *call) { c.Recovery, c.ProviderWindowMS = "resend", int(span/time.Millisecond) }
	t.provider.set(func(p *provider) { p.status = []int{500} })
	d := t.driver()
	t.got(d.do(t.call(short)), "unknown")
	t.provider.shut("/before")
	p := d.begin(t.call(short, t.pausedBefore))
	t.provider.arrived(t, "/before")
	<-time.After(span)
	t.provider.open("/before")
	t.got(p.one(), "in_doubt")
	require.Len(t, t.asked(), 1)
}

// Under resend somebody else acts while the holder is frozen before its effect; the holder starts nothing.
func frozenBeforeEffectResend(t *trial) {
	t.provider.shut("/before")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call(t.pausedBefore, recovery("resend"), window))
	t.provider.arrived(t, "/before")
	t.freeze(d, func() { t.got(t.driver().do(t.call(recovery("resend"), window)), "executed") })
	t.provider.open("/before")
	t.got(p.one(), "replayed")
	require.Len(t, t.asked(), 1)
	t.landed(2)
}

// Under resend somebody else acts while the holder is frozen in mid-effect. The provider honours the key: one effect.
// The holder's report is fenced, and it gets the receipt.
func frozenInEffectResend(t *trial) {
	t.provider.set(func(p *provider) { p.honour = true })
	t.provider.shut("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	p := d.begin(t.call(recovery("resend"), window))
	t.provider.arrived(t, "/effect")
	t.freeze(d, func() {
		other := t.driver().begin(t.call(recovery("resend"), window))
		eventually(t, "the other one acts", patience, func() bool { return len(t.asked()) == 2 })
		t.provider.open("/effect")
		t.got(other.one(), "executed")
	})
	t.got(p.one(), "replayed")
	asked := t.asked()
	require.Equal(t, asked[0].key, asked[1].key)
	require.Less(t, asked[0].token, asked[1].token)
	require.Equal(t, asked[0].input, asked[1].input, "a resend sends the exact bytes of the first attempt")
	require.Len(t, t.landed(2).Evidence, 1, "the fenced report is kept")
}

// verifying is a call whose provider can be asked.
func (t *trial) verifying(c *call) {
	c.Recovery, c.Look, c.SettleMS, c.AttemptTimeoutMS = "verify", t.provider.url+"/look", 200, 30_000
}

// The provider acts and hangs up; the same call asks it and gets the receipt.
func verifyOwnDoubt(t *trial) {
	t.provider.set(func(p *provider) { p.hangUp = true })
	a := t.driver().do(t.call(t.verifying))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "ch_1", t.value(a).ID)
	require.Equal(t, "ch_1", a.ExternalID)
	require.Equal(t, "lookup", t.landed(1).Receipt.From)
	t.got(t.driver().do(t.call(t.verifying)), "replayed")
}

// A caller dies in mid-effect; the next one is sent to look, and finds it.
func verifyDeadHolderHappened(t *trial) {
	t.provider.shut("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call(t.verifying))
	t.provider.arrived(t, "/effect")
	d.signal(syscall.SIGKILL)
	t.provider.open("/effect")
	a := t.driver().do(t.call(t.verifying))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "ch_1", t.value(a).ID)
	require.Len(t, t.asked(), 1)
	t.landed(1)
}

// A caller dies before its effect; the next one is sent to look, finds nothing, and acts.
func verifyDeadHolderDidNot(t *trial) {
	t.provider.shut("/before")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call(t.verifying, t.pausedBefore))
	t.provider.arrived(t, "/before")
	d.signal(syscall.SIGKILL)
	t.provider.open("/before")
	t.got(t.driver().do(t.call(t.verifying)), "executed")
	require.Len(t, t.asked(), 1)
	t.landed(2)
}

// A look-up may take longer than the session's time to live: it is renewed meanwhile, and nobody else is sent to look.
func lookTakesItsTime(t *trial) {
	t.provider.set(func(p *provider) { p.hangUp = true })
	t.provider.shut("/look")
	first := t.driver(ttl(int(shortTTL / time.Second))).begin(t.call(t.verifying))
	t.provider.arrived(t, "/look")
	other := t.driver(ttl(int(shortTTL / time.Second))).begin(t.call(t.verifying))
	<-time.After(3 * shortTTL)
	t.provider.open("/look")
	for _, p := range []*pending{first, other} {
		a := p.one()
		require.Empty(t, a.Error, a.Detail)
	}
	require.Equal(t, 1, t.provider.came("/look"))
	require.Len(t, t.asked(), 1)
	t.landed(1)
}

// Who is sent to look and cannot says so, and keeps nobody from looking who can.
func whoCannotLookLetsGo(t *trial) {
	t.provider.shut("/effect")
	d := t.driver(ttl(int(shortTTL / time.Second)))
	d.begin(t.call(t.verifying))
	t.provider.arrived(t, "/effect")
	d.signal(syscall.SIGKILL)
	t.provider.open("/effect")
	t.got(t.driver(ttl(60)).do(t.call()), "in_doubt")
	a := t.driver().do(t.call(t.verifying, waitMS(10_000)))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "ch_1", t.value(a).ID)
	t.landed(1)
}
