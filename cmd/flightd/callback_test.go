package main

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/internal/crashpoint"
)

// TestDev_DiesDuringSuspendOrCallback: flightd is killed while it takes the suspend of an attempt, or the callback, and its answer is
// lost. Worker and provider ask again. The flight gets the receipt of the callback, by its first attempt.
func TestDev_DiesDuringSuspendOrCallback(t *testing.T) {
	for _, point := range []crashpoint.Point{
		crashpoint.BeforeSuspend, crashpoint.AfterSuspend, crashpoint.BeforeReport, crashpoint.AfterReport,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			s.kill()
			s.start(crashpoint.Env + "=" + point)
			c, err := client.Connect(t.Context(), s.url(), client.WithSpool(t.TempDir()))
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close(context.Background())) }()
			jobs, done := make(chan string, 1), make(chan error, 1)
			go func() {
				_, err := client.Do(t.Context(), c, client.Key("render", "film-7"), 1, func(ctx context.Context, at client.Attempt) (int, error) {
					jobs <- at.CallbackURL()
					return 0, at.Suspend(ctx, time.Hour)
				}, client.WithCallback())
				done <- err
			}()
			suspended := func() {
				var handedOver *client.Suspended
				require.ErrorAs(t, <-done, &handedOver)
				require.Equal(t, "waiting", s.flight("render/film-7").State)
			}
			back := <-jobs
			call := func() error {
				answer, err := http.Post(back, "application/json", bytes.NewReader([]byte(`{"outcome":"succeeded","external_id":"job_7","body":7}`)))
				if err == nil {
					require.Equal(t, http.StatusOK, answer.StatusCode)
					require.NoError(t, answer.Body.Close())
				}
				return err
			}
			if strings.HasSuffix(point, "suspend") {
				s.waitKilled(t)
				s.start()
				suspended()
			} else {
				suspended()
				var lost *url.Error
				require.ErrorAs(t, call(), &lost)
				s.waitKilled(t)
				s.start()
			}
			require.NoError(t, call())
			f := s.flight("render/film-7")
			require.Equal(t, "succeeded", f.State, "the flight is %+v", f)
			require.Equal(t, "job_7", f.Receipt.ExternalID)
			require.EqualValues(t, 1, f.Attempts)
			require.Empty(t, f.Evidence, "the same callback again is no second outcome")
			require.Empty(t, jobs)
		})
	}
}

// TestDev_DiesBetweenSuspendAndCallback: a worker hands its attempt over and leaves, flightd is killed and started again, and the
// provider calls back, twice. Every later call gets that receipt, and no log has the callback token.
func TestDev_DiesBetweenSuspendAndCallback(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.kill()
	s.flags = []string{"--log-level", "debug"}
	s.start()
	type video struct{ URL string }
	var handlers int
	var url string
	render := func() (video, error) {
		c, err := client.Connect(t.Context(), s.url(), client.WithSpool(t.TempDir()))
		require.NoError(t, err)
		v, err := client.Do(t.Context(), c, client.Key("render", "film-7"), map[string]int{"scene": 1}, func(ctx context.Context, at client.Attempt) (video, error) {
			handlers++
			url = at.CallbackURL()
			return video{}, at.Suspend(ctx, time.Hour)
		}, client.WithCallback())
		require.NoError(t, c.Close(t.Context()))
		return v, err
	}
	_, err := render()
	var suspended *client.Suspended
	require.ErrorAs(t, err, &suspended)
	why := s.flightd("why", "render/film-7")
	require.Contains(t, why.out, "waits for the callback of its provider until", "%v", why)
	s.kill()
	logs := s.log.String()
	s.start()
	require.Equal(t, "waiting", s.flight("render/film-7").State)
	require.True(t, strings.HasPrefix(url, s.url()+"/v1/callbacks/"), "%s", url)
	post := func(body string) int {
		answer, err := http.Post(url, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	const done = `{"outcome":"succeeded","external_id":"job_7","body":{"URL":"https://farm.example/7.mp4"}}`
	require.Equal(t, http.StatusOK, post(done))
	require.Equal(t, http.StatusOK, post(done))
	require.Equal(t, http.StatusConflict, post(`{"outcome":"refused"}`))
	v, err := render()
	require.NoError(t, err)
	require.Equal(t, video{"https://farm.example/7.mp4"}, v)
	require.Equal(t, 1, handlers)
	s.kill()
	_, token, _ := strings.Cut(url, "/v1/callbacks/")
	require.NotContains(t, logs+s.log.String(), token[:len(token)-10])
	require.Contains(t, s.log.String(), "/v1/callbacks/fltd_(hidden)", "debug logs name the rejected request")
}
