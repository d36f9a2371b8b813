//go:build browser

package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A night on call: an effect is killed in the middle, the message about it arrives with a signature that the published algorithm of Standard
// Webhooks verifies, its link is opened in the browser, the doubt is settled with a reason, the caller gets the receipt, and the audit log
// names the person.
func TestDoubt_AtNight(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	type message struct {
		header  http.Header
		payload []byte
	}
	received := make(chan message, 10)
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, _ := io.ReadAll(r.Body)
		received <- message{r.Header, payload}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(chat.Close)
	command := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), flightd, args...)
		c.Env = append(environment(t), "FLIGHTD_ADDR="+s.url)
		return c
	}
	charge := []string{"exec", "--key", "charge/order-42", "--wait", "40s", "--", "sh", "-c", "echo sent; sleep 60"}

	made, err := command("notify", "put", "oncall", "--url", chat.URL, "--reason", "on call", "-o", "json").Output()
	require.NoError(t, err)
	var target struct{ Secret string }
	require.NoError(t, json.Unmarshal(made, &target))
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(target.Secret, "whsec_"))
	require.NoError(t, err)

	caller := command(charge...)
	out, err := caller.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, caller.Start())
	_, err = io.ReadFull(out, make([]byte, len("sent"))) // the effect has begun
	require.NoError(t, err)
	require.NoError(t, caller.Process.Kill())
	_ = caller.Wait()
	retry := command(charge...) // waits until the session of the dead caller has ended
	require.Error(t, retry.Run())
	require.Equal(t, 76, retry.ProcessState.ExitCode())

	var m message
	select {
	case m = <-received:
	case <-time.After(limit):
		require.FailNow(t, "no message has arrived")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(m.header.Get("webhook-id") + "." + m.header.Get("webhook-timestamp") + "." + string(m.payload)))
	require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), m.header.Get("webhook-signature"))
	var doubt struct {
		Type, Text string
		Data       struct{ Key, Link string }
	}
	require.NoError(t, json.Unmarshal(m.payload, &doubt))
	require.Equal(t, []string{"flight.in_doubt", "default/charge/order-42"}, []string{doubt.Type, doubt.Data.Key})
	require.Contains(t, doubt.Text, doubt.Data.Link)

	p := openTab(t, 1280, 800, false)
	p.visit(doubt.Data.Link)
	p.sees(".says .state", "in doubt")
	p.press("r")
	p.click("input[value=happened]")
	p.sees("dialog", "Every caller")
	require.True(t, value[bool](p, `document.querySelector("dialog button.act").disabled`), "without a receipt and a reason nothing is sent")
	p.fill("dialog textarea[name=receipt]", `{"id": "ch_17"}`)
	p.fill("dialog input[name=external]", "ch_17")
	p.fill("dialog input[name=reason]", "the bank statement shows it")
	p.fill("dialog input[name=actor]", "Ann Ünal")
	p.click("dialog button.act")
	p.sees(".says .state", "succeeded")
	p.sees(".timeline", "Ann Ünal resolved it (it happened: the bank statement shows it)")
	f := s.must("GET", "/v1/flights?key=default/charge/order-42", nil)["receipt"].(object)
	require.Equal(t, []any{"ch_17", "person"}, []any{f["external_id"], f["from"]})

	receipt, err := command(charge...).Output()
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "ch_17"}`, string(receipt))
	audit, err := command("audit", "ls").Output()
	require.NoError(t, err)
	require.Contains(t, string(audit), "Ann Ünal")
	require.Contains(t, string(audit), "the bank statement shows it")
	require.Empty(t, received, "one message for one doubt")
}
