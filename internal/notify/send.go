package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
)

// The bounds of one delivery.
const (
	sendTimeout = 10 * time.Second
	maxAnswer   = 64 << 10 // bytes of the answer that are read, so that the connection can be used again
)

// newClient returns a client that connects to the addresses that mayReach allows. It follows no redirect and uses no proxy: either
// would reach another address than the one that was checked.
func newClient(mayReach func(netip.Addr) bool) *http.Client {
	dialer := &net.Dialer{Timeout: sendTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address) // the address after the name was resolved
		if err != nil {
			return err
		}
		if !mayReach(to.Addr().Unmap().WithZone("")) {
			return fmt.Errorf("%s is not a public address; notify_private allows it", to.Addr())
		}
		return nil
	}}
	return &http.Client{
		Timeout: sendTimeout, Transport: &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: sendTimeout, MaxIdleConns: wire.MaxNotifyTargets, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// isPublic reports whether an address is one of the public Internet. A target must not make a node send requests into the network
// around it, unless the operator of the node allows it.
func isPublic(a netip.Addr) bool {
	if a.Is6() {
		return netip.MustParsePrefix("2000::/3").Contains(a) && !netip.MustParsePrefix("2001::/23").Contains(a) &&
			!netip.MustParsePrefix("2001:db8::/32").Contains(a) && !netip.MustParsePrefix("2002::/16").Contains(a)
	}
	for _, reserved := range [...]string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"} {
		if netip.MustParsePrefix(reserved).Contains(a) {
			return false
		}
	}
	return !a.IsLoopback() && !a.IsPrivate() && !a.IsLinkLocalUnicast()
}

// post sends one message, signed as Standard Webhooks demands. A nil error means that the target has answered 2xx. The error names
// no URL, and has the pause that the target asks for.
func (n *Notifier) post(ctx context.Context, t *wire.NotifyTarget, id string, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the URL cannot be used")
	}
	sent := strconv.FormatInt(n.cfg.Wall().Unix(), 10)
	mac := hmac.New(sha256.New, t.Key())
	fmt.Fprintf(mac, "%s.%s.%s", id, sent, body)
	req.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"flightd"}, "Webhook-Id": {id}, "Webhook-Timestamp": {sent},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))}}
	answer, err := n.client.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return 0, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer)) // the status is the answer
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		err = fmt.Errorf("the target answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
		if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable { // about the target, not about this message
			_, asked := effect.FromHTTP(&http.Response{StatusCode: answer.StatusCode, Header: answer.Header, Body: http.NoBody}, nil)
			err = effect.RetryAfter(err, effect.RequestedPause(asked))
		}
		return answer.StatusCode, err
	}
	return answer.StatusCode, nil
}
