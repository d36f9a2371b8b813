package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/flightd/flightd/httpapi/wire"
)

// crmClient calls the CRM over HTTP.
type crmClient struct {
	url  string
	http *http.Client
}

// set configures how the CRM treats an external id.
func (cc crmClient) set(ctx context.Context, externalID string, s Setting) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return cc.send(ctx, http.MethodPut, "/settings/"+url.PathEscape(externalID), body, nil)
}

// count returns the tickets and requests that the CRM has recorded.
func (cc crmClient) count(ctx context.Context, externalID string) (Count, error) {
	var c Count
	err := cc.send(ctx, http.MethodGet, "/count?external_id="+url.QueryEscape(externalID), nil, &c)
	return c, err
}

// find looks tickets up. It returns an error if the CRM's setting does not allow look-ups.
func (cc crmClient) find(ctx context.Context, externalID string) ([]Ticket, error) {
	var t []Ticket
	err := cc.send(ctx, http.MethodGet, "/tickets?external_id="+url.QueryEscape(externalID), nil, &t)
	return t, err
}

func (cc crmClient) send(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, cc.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	resp, err := cc.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("the CRM answered %d: %s", resp.StatusCode, data)
	case into == nil:
		return nil
	}
	return json.Unmarshal(data, into)
}
