package httpapi_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// bodyHookLedger is a ledger that calls happens after a flight was read and before its bytes are, which are deleted
// then.
type bodyHookLedger struct {
	httpapi.Ledger
	happens func() // once
}

func (l *bodyHookLedger) ReceiptBody(f *flight.Flight) ([]byte, error) {
	if l.happens == nil {
		return l.Ledger.ReceiptBody(f)
	}
	l.happens()
	l.happens = nil
	return nil, errors.New("no such body")
}

// A flight that expires, is redacted or is freed during a read is shown in its old or new state, never as an internal
// error.
func TestReceipt_FlightChangesDuringRead(t *testing.T) {
	key := flight.MustKey("default/charge/1")
	for name, end := range map[string]struct {
		command                  flight.Command // nil: time passes
		shown, receipt, replayed int
	}{
		"expired": {nil, http.StatusOK, http.StatusGone, http.StatusGone},
		"erased":  {&flight.Redact{Key: key, Generation: 1, Actor: "eve", Reason: "asked for"}, http.StatusOK, http.StatusGone, http.StatusOK},
		"freed":   {&flight.FreeKey{Key: key, Generation: 1, Actor: "eve", Reason: "again"}, http.StatusNotFound, http.StatusNotFound, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			for _, way := range []string{"id", "key", "receipt", "open"} {
				var ledger bodyHookLedger
				d := newTestServer(t, func(cfg *httpapi.Config) {
					ledger.Ledger = cfg.Ledger
					cfg.Ledger = &ledger
				})
				open := `{"action":"charge","id":"1","retention":"1s"}`
				a := d.proceed(open)
				require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded","body":{"n":1}`).status)
				ledger.happens = func() {
					if end.command == nil {
						d.fake.Ledger.Advance(3 * time.Second)
						return
					}
					require.Equal(t, flight.DecisionAccepted, d.fake.Apply(d.t, end.command).Decision)
				}
				var r reply
				want := end.shown
				switch way {
				case "id":
					r = d.get("/v1/flights/" + a.FlightID)
				case "key":
					r = d.get("/v1/flights?key=default/charge/1")
				case "receipt":
					r, want = d.get("/v1/flights/"+a.FlightID+"/receipt"), end.receipt
				case "open":
					r, want = d.post("/v1/flights:open", open), end.replayed
				}
				require.Equal(t, want, r.status, "by %s: %s", way, r.body)
				require.Nil(t, ledger.happens)
				if name == "freed" && way == "open" {
					require.True(t, *decodeBody[wire.Problem](t, r).Proposed, "the open may have been proposed, so its caller must follow it up")
				}
				if name == "expired" {
					require.Equal(t, "expired", r.header.Get("Flightd-State"), way)
				}
			}
		})
	}
}

// Bytes that are missing although the flight has not changed are an internal error.
func TestReceipt_MissingBodyIsInternalError(t *testing.T) {
	var ledger bodyHookLedger
	d := newTestServer(t, func(cfg *httpapi.Config) {
		ledger.Ledger = cfg.Ledger
		cfg.Ledger = &ledger
	})
	a := d.proceed(`{"action":"charge","id":"1"}`)
	require.Equal(t, http.StatusOK, d.report(a, `"outcome":"succeeded","body":{"n":1}`).status)
	ledger.happens = func() {}
	requireProblem(t, d.get("/v1/flights/"+a.FlightID), http.StatusInternalServerError, wire.Internal)
}

func TestReceiptOfAFlightThatHasNone(t *testing.T) {
	d := newTestServer(t)
	a, etag := d.openInDoubt("1")
	r := d.post("/v1/flights/"+a.FlightID+"/resolve", `{"result":"fail","reason":"gone"}`, "If-Match", etag)
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	requireProblem(t, d.get("/v1/flights/"+a.FlightID+"/receipt"), http.StatusFailedDependency, wire.FlightFailed)
}
