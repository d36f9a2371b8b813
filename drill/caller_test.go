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

func TestPathStopsAtItsPointOnceAndSaysSoBefore(t *testing.T) {
	in, drill := io.Pipe()
	out, caller := io.Pipe()
	p := newPath(CallerConfig{PauseAt: crashpoint.BeforeSend, In: in, Out: caller})
	walked := make(chan struct{})
	go func() {
		defer close(walked)
		p.pass(crashpoint.AfterOpen, 1, nil)
		p.pass(crashpoint.BeforeSend, 1, nil)
		p.pass(crashpoint.BeforeReport, 1, errors.New("lost"))
		p.pass(crashpoint.BeforeSend, 2, nil)
		_ = p.end(nil)
	}()
	lines := bufio.NewScanner(out)
	heard := func() (l line) {
		require.True(t, lines.Scan())
		require.NoError(t, json.Unmarshal(lines.Bytes(), &l))
		return l
	}
	require.Equal(t, line{Point: crashpoint.AfterOpen, Attempt: 1}, heard())
	require.Equal(t, line{Point: crashpoint.BeforeSend, Attempt: 1}, heard())
	_, err := io.WriteString(drill, "\n")
	require.NoError(t, err)
	require.Equal(t, line{Point: crashpoint.BeforeReport, Attempt: 1, Error: "lost"}, heard())
	require.Equal(t, line{Point: crashpoint.BeforeSend, Attempt: 2}, heard())
	require.Equal(t, line{End: endedWell}, heard())
	<-walked
}

func TestVoiceKnowsWhichAttemptsFailed(t *testing.T) {
	open1, report1 := line{Point: crashpoint.AfterOpen, Attempt: 1}, line{Point: crashpoint.BeforeReport, Attempt: 1}
	failed1 := line{Point: crashpoint.BeforeReport, Attempt: 1, Error: "EOF"}
	open2, after2 := line{Point: crashpoint.AfterOpen, Attempt: 2}, line{Point: crashpoint.AfterReport, Attempt: 2}
	for _, test := range []struct {
		said []line
		want []uint32
	}{
		{[]line{open1}, []uint32{1}},
		{[]line{open1, report1}, []uint32{1}},
		{[]line{open1, report1, {End: endedWell}}, nil},
		{[]line{open1, failed1, {End: endedInDoubt}}, []uint32{1}},
		{[]line{open1, failed1, open2, after2, {End: endedWell}}, []uint32{1}},
		{[]line{open2, after2}, nil},
		{nil, nil},
	} {
		v := voice{said: test.said}
		require.Equal(t, test.want, v.failed(), "%+v", test.said)
	}
}

func TestEndOf(t *testing.T) {
	for want, errs := range map[string][]error{
		endedWell:    {nil},
		endedInDoubt: {&effect.InDoubt{}, fmt.Errorf("so: %w", &effect.InDoubt{})},
		endedAgain:   {&effect.Busy{}, &effect.Unsettled{}, &effect.Unrecorded{}, &effect.Unavailable{}, &effect.Fenced{}, effect.ErrLeaseLost},
		endedBadly:   {&effect.Conflict{}, &effect.Failed{}, &effect.Declined{}, io.EOF},
	} {
		for _, err := range errs {
			require.Equal(t, want, endOf(err), "%T", err)
		}
	}
}

func TestRelaySeesAnOpenLeaveBeforeItIsAnswered(t *testing.T) {
	left := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == opensPath {
			<-left // the proxy reports the open before the server answers it
			_, _ = io.WriteString(w, r.Host)
		}
	}))
	defer server.Close()
	r, err := startRelay(server.URL, func() { left <- struct{}{} })
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

func TestRelayToADeadServerEndsTheConnection(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	r, err := startRelay(server.URL, func() {})
	require.NoError(t, err)
	defer r.close()
	server.Close()
	_, err = http.Get(r.url() + "/version")
	require.ErrorIs(t, err, io.EOF)
}

func TestCallerAloneRepeatsItself(t *testing.T) {
	crm := newCRM(t)
	require.NoError(t, crm.set(t.Context(), "x", Setting{Fault: Drop}))
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
