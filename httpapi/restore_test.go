package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// askedFor is a restored ledger, and the keys that callers have asked for since.
type askedFor []string

func (askedFor) Backup(context.Context, io.Writer) error { return nil }

func (a askedFor) Asked(after string, limit int) ([]string, int) {
	keys := slices.DeleteFunc(slices.Sorted(slices.Values(a)), func(k string) bool { return k <= after })
	return keys[:min(limit, len(keys))], len(a)
}

// The pages have every flight of the ledger that may run when the restore is finished, and every other key that was asked for, once. Those with
// a receipt or a doubt are left out.
func TestRestoreAsked_HasWhatMayRun(t *testing.T) {
	var operator httpapi.Operator
	var ledger httpapi.Ledger
	d := newTestServer(t, func(c *httpapi.Config) {
		operator, ledger, c.Restores = c.Operator, c.Ledger, askedFor{"default/pay/new", "default/pay/1", "default/a/zz"}
	})
	want := []string{"default/pay/new", "default/a/zz"}
	for i := range 7 {
		d.proceed(fmt.Sprintf(`{"action":"pay","id":"%d"}`, i))
		want = append(want, fmt.Sprintf("default/pay/%d", i))
	}
	d.report(d.proceed(`{"action":"pay","id":"done"}`), `"outcome":"succeeded"`)
	d.openInDoubt("doubt")
	require.Empty(t, decodeBody[wire.AskedPage](t, d.get("/v1/restore/asked")).Keys, "no restore is open")
	_, err := operator.Propose(t.Context(), &flight.Restore{From: ledger.Header().StoreEpoch})
	require.NoError(t, err)
	for _, limit := range []int{1, 2, 3, httpapi.MaxPage} {
		var keys []string
		for after := ""; ; {
			page := decodeBody[wire.AskedPage](t, d.get(fmt.Sprintf("/v1/restore/asked?limit=%d&after=%s", limit, url.QueryEscape(after))))
			require.LessOrEqual(t, len(page.Keys), limit)
			keys = append(keys, page.Keys...)
			if after = page.Next; after == "" {
				break
			}
		}
		require.ElementsMatch(t, want, keys, "pages of %d", limit)
	}
	requireProblem(t, d.get("/v1/restore/asked?after=nonsense"), 400, wire.InputInvalid)
}

// The provider of an attempt that the restore has lost calls again until the restore is finished: a 404 would end its deliveries, and the
// receipt would be lost.
func TestRestore_CallbackOfALostFlightIsRepeated(t *testing.T) {
	var operator httpapi.Operator
	var ledger httpapi.Ledger
	d := newTestServer(t, func(c *httpapi.Config) { operator, ledger, c.Restores = c.Operator, c.Ledger, askedFor(nil) })
	header := ledger.Header()
	lost := flight.CallbackToken{ID: flight.MustKey("default/render/lost").FlightID(), Generation: 1, Token: flight.Token{StoreEpoch: header.StoreEpoch, Number: 1}}
	call := func() reply { return d.post("/v1/callbacks/"+lost.Seal(header.Secret), `{"outcome":"succeeded"}`) }
	requireProblem(t, call(), 404, wire.NotFound)
	_, err := operator.Propose(t.Context(), &flight.Restore{From: header.StoreEpoch})
	require.NoError(t, err)
	r := call()
	requireProblem(t, r, 503, wire.Reconciling)
	require.NotEmpty(t, r.header.Get("Retry-After"))
	_, err = operator.Propose(t.Context(), &flight.FinishRestore{Epoch: ledger.Header().StoreEpoch, Force: true})
	require.NoError(t, err)
	requireProblem(t, call(), 404, wire.NotFound)
}
