package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/flightd/flightd/httpapi/wire"
)

// Answers about a restored ledger.
type (
	Restore   = wire.Restore
	AskedPage = wire.AskedPage
)

// Restore returns whether the ledger was restored and opens nothing.
func (c *Client) Restore(ctx context.Context) (*Restore, error) {
	return decode[Restore](c.ask(ctx, request{method: http.MethodGet, path: "/v1/restore"}))
}

// Asked returns a page of the keys that may run when the restore is finished: first the flights of the ledger and the steps of its sagas,
// then the other keys that callers have asked for. after is the Next of the previous page.
func (c *Client) Asked(ctx context.Context, after string, limit int) (*AskedPage, error) {
	return decode[AskedPage](c.ask(ctx, request{method: http.MethodGet, path: withQuery("/v1/restore/asked", "after", after, "limit", strconv.Itoa(limit))}))
}

// FinishRestore lets flights open again in a restored ledger. Before the hold is over, it needs force.
func (c *Client) FinishRestore(ctx context.Context, reason string, force bool) (*Restore, error) {
	body := wire.FinishRestore{Reason: reason, Force: force}
	return decode[Restore](c.ask(ctx, adminRequest(http.MethodPost, "/v1/restore:finish", &body)))
}

// LeaseEpoch is the answer of RaiseLeaseEpoch.
type LeaseEpoch = wire.LeaseEpoch

// RaiseLeaseEpoch accepts an etcd that has lost data. It changes nothing if etcd has lost nothing.
func (c *Client) RaiseLeaseEpoch(ctx context.Context, reason string) (*LeaseEpoch, error) {
	body := wire.ReasonRequest{Reason: reason}
	return decode[LeaseEpoch](c.ask(ctx, adminRequest(http.MethodPost, "/v1/lease-epoch:raise", &body)))
}

// Backup writes a backup of the ledger, a tar archive, to w. It sends one request, to one server. After an error the archive
// is incomplete: it has no manifest, which is its last file.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	r := request{method: http.MethodGet, path: "/v1/backup"}
	order, _ := c.picker.pick(len(c.servers), false)
	req, err := c.newRequest(ctx, c.servers[order[0]], &r)
	if err != nil {
		return err
	}
	answer, err := c.http.RoundTrip(req)
	if err != nil {
		return explainTLS(err, req.URL.Host, false) // a backup only reads
	}
	defer answer.Body.Close()
	if own := isOwn(answer, req); !own || answer.StatusCode != http.StatusOK {
		body, err := readBody(answer)
		if err != nil {
			return err
		}
		return r.problemFrom(&response{status: answer.StatusCode, header: answer.Header, own: own, body: body})
	}
	if _, err = io.Copy(w, answer.Body); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the server closed the connection in the middle
	}
	return err
}
