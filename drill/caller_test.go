package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/internal/crashpoint"
)

func newCRM(t *testing.T) crmClient {
	server := httptest.NewServer(NewCRM().Handler())
	t.Cleanup(server.Close)
	return crmClient{url: server.URL, http: server.Client()}
}

func TestCrashPoints_ReportsThenPausesOnce(t *testing.T) {
	in, drill := io.Pipe()
	out, caller := io.Pipe()
	p := newCrashPoints(CallerConfig{PauseAt: crashpoint.BeforeSend, In: in, Out: caller})
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.pass(crashpoint.AfterOpen, 1, nil)
		p.pass(crashpoint.BeforeSend, 1, nil)
		p.pass(crashpoint.BeforeReport, 1, errors.New("lost"))
		p.pass(crashpoint.BeforeSend, 2, nil)
		_ = p.reportEnd(nil)
	}()
	lines := bufio.NewScanner(out)
	next := func() (l message) {
		require.True(t, lines.Scan())
		require.NoError(t, json.Unmarshal(lines.Bytes(), &l))
		return l
	}
	require.Equal(t, message{Point: crashpoint.AfterOpen, Attempt: 1}, next())
	require.Equal(t, message{Point: crashpoint.BeforeSend, Attempt: 1}, next())
	_, err := io.WriteString(drill, "\n")
	require.NoError(t, err)
	require.Equal(t, message{Point: crashpoint.BeforeReport, Attempt: 1, Error: "lost"}, next())
	require.Equal(t, message{Point: crashpoint.BeforeSend, Attempt: 2}, next())
	require.Equal(t, message{End: endSucceeded}, next())
	<-done
}

func TestCallerProcess_FailedAttempts(t *testing.T) {
	open1, report1 := message{Point: crashpoint.AfterOpen, Attempt: 1}, message{Point: crashpoint.BeforeReport, Attempt: 1}
	failed1 := message{Point: crashpoint.BeforeReport, Attempt: 1, Error: "EOF"}
	open2, after2 := message{Point: crashpoint.AfterOpen, Attempt: 2}, message{Point: crashpoint.AfterReport, Attempt: 2}
	for _, test := range []struct {
		said []message
		want []uint32
	}{
		{[]message{open1}, []uint32{1}},
		{[]message{open1, report1}, []uint32{1}},
		{[]message{open1, report1, {End: endSucceeded}}, nil},
		{[]message{open1, failed1, {End: endInDoubt}}, []uint32{1}},
		{[]message{open1, failed1, open2, after2, {End: endSucceeded}}, []uint32{1}},
		{[]message{open2, after2}, nil},
		{nil, nil},
	} {
		v := callerProcess{messages: test.said}
		require.Equal(t, test.want, v.failed(), "%+v", test.said)
	}
}

func TestClassifyEnd(t *testing.T) {
	for want, errs := range map[string][]error{
		endSucceeded: {nil},
		endInDoubt:   {&effect.InDoubt{}, fmt.Errorf("so: %w", &effect.InDoubt{})},
		endRetry:     {&effect.Busy{}, &effect.Unsettled{}, &effect.Unrecorded{}, &effect.Unavailable{}, &effect.Fenced{}, effect.ErrLeaseLost},
		endFailed:    {&effect.Conflict{}, &effect.Failed{}, &effect.Declined{}, io.EOF},
	} {
		for _, err := range errs {
			require.Equal(t, want, classifyEnd(err), "%T", err)
		}
	}
}

func TestProxy_ReportsOpenBeforeItsAnswer(t *testing.T) {
	left := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == opensPath {
			<-left // the proxy reports the open before the server answers it
			_, _ = io.WriteString(w, r.Host)
		}
	}))
	defer server.Close()
	r, err := startProxy(server.URL, func() { left <- struct{}{} })
	require.NoError(t, err)
	defer r.close()
	for range 2 {
		resp, err := http.Post(r.url()+opensPath, "application/json", nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, server.Listener.Addr().String(), string(body))
		other, err := http.Get(r.url() + "/version")
		require.NoError(t, err)
		require.NoError(t, other.Body.Close())
		require.Empty(t, left)
	}
}

func TestProxy_ClosesConnectionWithoutServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	r, err := startProxy(server.URL, func() {})
	require.NoError(t, err)
	defer r.close()
	server.Close()
	_, err = http.Get(r.url() + "/version")
	require.ErrorIs(t, err, io.EOF)
}

func TestCallerWithoutFlightd_MakesDuplicates(t *testing.T) {
	crm := newCRM(t)
	require.NoError(t, crm.set(t.Context(), "x", Setting{Fault: FaultDrop}))
	out, caller := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- RunCaller(context.Background(), CallerConfig{CRM: crm.url, ID: "x", Recovery: NoRecovery, In: nil, Out: caller})
		_ = caller.Close()
	}()
	_, err := io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, <-ended)
	count, err := crm.count(t.Context(), "x")
	require.NoError(t, err)
	require.Len(t, count.Tickets, 2)
}
