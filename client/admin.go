package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// Requests and answers about tokens, namespaces and the audit log.
type (
	TokenRequest     = wire.TokenRequest
	NewToken         = wire.NewToken
	Token            = wire.Token
	NamespaceLimits  = wire.NamespaceLimits
	NamespaceRequest = wire.NamespaceRequest
	Namespace        = wire.Namespace
	NamespaceList    = wire.NamespaceList
	AuditEntry       = wire.AuditEntry
	AuditPage        = wire.AuditPage
	WhoAmI           = wire.WhoAmI
)

// CreateToken creates a token and returns it with its secret, which no server shows again. It sends the request once. If
// the answer is lost, the token may exist, and nobody knows its secret: call CreateToken with Rotate.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (*NewToken, error) {
	ask := adminRequest(http.MethodPost, "/v1/tokens", &r)
	ask.maxTries, ask.noStaleRetry = 1, true
	return decode[NewToken](c.ask(ctx, ask))
}

// Tokens returns all tokens that the client's token may administer, without their secrets.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	list, err := decode[wire.TokenList](c.ask(ctx, request{method: http.MethodGet, path: "/v1/tokens"}))
	if err != nil {
		return nil, err
	}
	return list.Tokens, nil
}

// RevokeToken ends a token at once. The namespace of a token of all namespaces is "*". notYet are the nodes of a cluster that
// did not answer: each of them may answer stored receipts and events to the token for at most 60 s.
func (c *Client) RevokeToken(ctx context.Context, namespace, name, reason string) (notYet []string, err error) {
	answer, err := decode[wire.Revoked](c.delete(ctx, "/v1/tokens/"+url.PathEscape(namespace)+"/"+url.PathEscape(name), reason))
	if err != nil {
		return nil, err
	}
	return answer.NotYet, nil
}

// delete deletes a document. A repeat that finds none, after a try whose answer was lost, is a success.
func (re *requester) delete(ctx context.Context, path, reason string) (response, error) {
	body := wire.ReasonRequest{Reason: reason}
	resp, err := re.ask(ctx, adminRequest(http.MethodDelete, path, &body))
	if resp.mayHaveArrived && CodeOf(err) == wire.NotFound {
		return response{body: []byte("{}")}, nil
	}
	return resp, err
}

// Audit returns a page of the audit log, the newest entries first. before is the Next of the previous page, and verb
// selects one verb; both may be empty.
func (c *Client) Audit(ctx context.Context, before, verb string, limit int) (*AuditPage, error) {
	return decode[AuditPage](c.ask(ctx, request{
		method: http.MethodGet, path: withQuery("/v1/audit", "limit", strconv.Itoa(limit), "before", before, "verb", verb),
	}))
}

// SetNamespace replaces all limits of a namespace. A limit that is 0 has the value of the namespace "*", else its default.
// The namespace "*" has the limits of all namespaces that declare none.
func (c *Client) SetNamespace(ctx context.Context, name string, r NamespaceRequest) (*Namespace, error) {
	return decode[Namespace](c.ask(ctx, adminRequest(http.MethodPut, "/v1/namespaces/"+url.PathEscape(name), &r)))
}

// Namespaces returns "*" and the namespaces that hold flights or declare limits, with the limits in force and their use.
func (c *Client) Namespaces(ctx context.Context) (*NamespaceList, error) {
	return decode[NamespaceList](c.ask(ctx, request{method: http.MethodGet, path: "/v1/namespaces"}))
}

// DeleteNamespace removes the limits of a namespace. Its flights stay.
func (c *Client) DeleteNamespace(ctx context.Context, name, reason string) error {
	_, err := c.delete(ctx, "/v1/namespaces/"+url.PathEscape(name), reason)
	return err
}

// WhoAmI returns what the client's token allows. An empty Name means that the server needs no token.
func (c *Client) WhoAmI(ctx context.Context) (*WhoAmI, error) {
	return decode[WhoAmI](c.ask(ctx, request{method: http.MethodGet, path: "/v1/whoami"}))
}

// adminRequest makes a request with a body, under the operator's name.
func adminRequest(method, path string, body any) request {
	return request{method: method, path: path, body: strictjson.Append(nil, body), actor: true}
}

// Requests and answers about targets of notifications.
type (
	NotifyRequest    = wire.NotifyRequest
	NotifyRules      = wire.NotifyRules
	NotifyMask       = wire.NotifyMask
	Notify           = wire.Notify
	NotifyTestAnswer = wire.NotifyTestAnswer
)

// NotifyTargets returns the targets of notifications, by name.
func (re *requester) NotifyTargets(ctx context.Context) ([]Notify, error) {
	list, err := decode[wire.NotifyList](re.ask(ctx, request{method: http.MethodGet, path: "/v1/notify"}))
	if err != nil {
		return nil, err
	}
	return list.Targets, nil
}

// NotifyTarget returns a target of notifications. The *Error has the code not_found if there is none.
func (re *requester) NotifyTarget(ctx context.Context, name string) (*Notify, error) {
	return decode[Notify](re.ask(ctx, request{method: http.MethodGet, path: notifyPath(name)}))
}

// PutNotifyTarget creates or replaces a target of notifications. The answer to the creation without a secret has a random one.
func (re *requester) PutNotifyTarget(ctx context.Context, name string, r NotifyRequest) (*Notify, error) {
	ask := adminRequest(http.MethodPut, notifyPath(name), &r)
	return decode[Notify](re.ask(ctx, ask))
}

// DeleteNotifyTarget deletes a target of notifications.
func (re *requester) DeleteNotifyTarget(ctx context.Context, name, reason string) error {
	_, err := re.delete(ctx, notifyPath(name), reason)
	return err
}

// TestNotifyTarget lets the server post a message to a target, once. A target that did not take it is no error of the call.
func (re *requester) TestNotifyTarget(ctx context.Context, name string) (*NotifyTestAnswer, error) {
	return decode[NotifyTestAnswer](re.ask(ctx, request{method: http.MethodPost, path: notifyPath(name) + "/test", body: []byte("{}")}))
}

func notifyPath(name string) string { return "/v1/notify/" + url.PathEscape(name) }
