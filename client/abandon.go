package client

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

const (
	// abandonTry is how long one try to abandon an open may take, with its repeats.
	abandonTry = 5 * time.Second
	// abandonFor is for how long it is tried again and again.
	abandonFor = 10 * time.Minute
)

// Abandon says that nothing was sent under the nonce of an open, and that nothing ever will be. It ends the attempt that the
// nonce has opened, or keeps it from opening one. r.NotAfter is that of the open; the key decides about action and id.
func (c *Client) Abandon(ctx context.Context, key flight.Key, r AbandonRequest) error {
	r.Action, r.ID = key.Name(), key.BusinessID()
	resp, err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/flights:abandon", body: r.AppendJSON(nil), key: key, timeout: abandonTry})
	if err == nil && string(bytes.TrimSpace(resp.body)) != "{}" {
		err = &effect.Unavailable{Code: "unreachable", Cause: errors.New("an answer to something else than an abandon")}
	}
	return err
}

// tryAbandon asks for the abandon of an open that was given up, for a short while. It answers whether there is nothing more
// to ask for.
func (c *Client) tryAbandon(ctx context.Context, o *opening) bool {
	ctx, cancel := context.WithTimeout(ctx, abandonTry)
	defer cancel()
	err := c.Abandon(ctx, o.key, AbandonRequest{Nonce: o.nonce, NotAfter: o.notAfter, Reason: "its caller gave up before the effect started"})
	return err == nil || isRejected(CodeOf(err))
}

// giveUp gives up a nonce before its effect has started.
func (o *opening) giveUp() { o.update(func() { o.phase, o.cancel = phaseGivenUp, nil }) }

// abandon gives up a nonce whose open may be carried out, and abandons that until a server has answered: nobody else would
// ever say that nothing was sent, and with its session it would end in doubt. The session is renewed meanwhile. Close waits
// for one more try. values are those of the call that it is for; that call is counted as work, so that this may be.
//
// If the process dies before a server has answered, the session ends, and the recovery policy decides.
func (c *Client) abandon(values context.Context, o *opening) {
	o.update(func() { o.phase, o.cancel, o.busy = phaseGivenUp, nil, true })
	c.runner.Work.Go(func() {
		defer o.update(func() { o.busy = false })
		pause, until, last := firstPause, time.Now().Add(abandonFor), false
		for !c.tryAbandon(values, o) && !last && time.Now().Before(until) {
			last = !sleep(c.runner.Draining, pause)
			pause = min(2*pause, 2*time.Second)
		}
	})
}
