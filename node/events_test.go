package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/metrics"
)

// record is one line of a log.
type record map[string]any

func recordsOf(t *testing.T, text string) (all []record) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		all = append(all, r)
	}
	return all
}

// Every log line of an event that has a key carries the key in the field "key", so that one search finds all lines.
func TestEveryLineAboutAFlightHasItsKey(t *testing.T) {
	var text bytes.Buffer
	n := &node{cfg: Config{Logger: slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))}}
	n.metrics = metrics.New(metrics.Config{})
	key := flight.MustKey("billing/charge/order-42")
	about := 0
	for _, events := range []any{
		n.metrics.Executor(executorEvents(n.cfg.Logger, &n.asked)), n.metrics.Leases(leaseEvents(n.cfg.Logger)), n.metrics.Store(storeEvents(n.cfg.Logger, nil, &n.events)), compactorEvents(n.cfg.Logger, &n.etcdFull),
	} {
		v := reflect.ValueOf(events)
		for i := range v.NumField() {
			if v.Field(i).IsNil() {
				continue
			}
			name, call := v.Type().Field(i).Name, v.Type().Field(i).Type
			args, keyed := make([]reflect.Value, call.NumIn()), false
			for a := range args {
				switch call.In(a) {
				case reflect.TypeFor[flight.Key]():
					args[a], keyed = reflect.ValueOf(key), true
				case reflect.TypeFor[error]():
					args[a] = reflect.ValueOf(errors.New("why"))
				default:
					args[a] = reflect.Zero(call.In(a))
				}
			}
			text.Reset()
			v.Field(i).Call(args)
			for _, r := range recordsOf(t, text.String()) {
				if keyed {
					require.Equal(t, key.String(), r["key"], "%s.%s: %v", v.Type(), name, r)
					about++
				}
			}
		}
	}
	require.GreaterOrEqual(t, about, 6, "log lines with a key")
}

// A running node logs a flight in doubt and a rejected request for it; each line has the key.
func TestLogOfALivingNode(t *testing.T) {
	t.Parallel()
	var text syncBuffer
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Logger = slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ready, done := make(chan Ready, 1), make(chan error, 1)
	cfg.Ready = func(r Ready) { ready <- r }
	go func() { done <- Run(ctx, cfg) }()
	r := <-ready
	key := flight.MustKey("default/charge/order-42")
	_, err := r.Executor.Do(t.Context(), effect.Call{Key: key}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, errors.New("the connection broke")
	})
	require.Error(t, err)
	req, err := http.NewRequest(http.MethodPost, r.URL+"/v1/flights:open", strings.NewReader(`{"action":"charge","id":"order-42","fingerprint":"none"}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", "mine-1")
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_ = answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	cancel()
	require.NoError(t, <-done)

	var messages []string
	for _, line := range recordsOf(t, text.String()) {
		raw, err := json.Marshal(line)
		require.NoError(t, err)
		if strings.Contains(string(raw), "order-42") || strings.Contains(string(raw), key.FlightID().String()) {
			require.Equal(t, key.String(), line["key"], "%s", raw)
			messages = append(messages, line["msg"].(string))
			if line["request_id"] != nil {
				require.Equal(t, "mine-1", line["request_id"])
				require.Equal(t, "0af7651916cd43dd8448eb211c80319c", line["trace_id"])
			}
		}
	}
	require.Equal(t, []string{"a flight is in doubt and waits for a person", "httpapi: request rejected"}, messages)
}

// No caller waits for the answer to a report from the spool, so its events must be published anyway. Here the report
// shows a second effect.
func TestSpooledReportEventsArePublished(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := open(t, data, nil)
	a := openAttempt(t, in.server.url(), "twice")
	status, _ := report(t, in.server.url(), a)
	require.Equal(t, http.StatusOK, status)
	id, err := flight.ParseID(a.FlightID)
	require.NoError(t, err)
	f, err := in.store.Flight(id)
	require.NoError(t, err)
	late, err := flight.Encode(&flight.Report{Key: f.Key, Generation: 1, Token: f.Newest().Token(), Outcome: flight.OutcomeSucceeded, ExternalID: "another"})
	require.NoError(t, err)
	require.NoError(t, in.stopNode())
	sum := crc32.Checksum(late, crc32.MakeTable(crc32.Castagnoli))
	file := append(binary.BigEndian.AppendUint32([]byte("FDR1"), sum), late...)
	require.NoError(t, os.WriteFile(filepath.Join(data, "ledger", "spool", "left.report"), file, 0o600))

	var text syncBuffer
	cfg := Dev(data, "127.0.0.1:0")
	cfg.Logger = slog.New(slog.NewJSONHandler(&text, nil))
	in = openConfig(t, cfg)
	await(t, "the spool is empty", func() bool { return in.store.Spooled() == 0 })
	await(t, "both events are logged", func() bool {
		return strings.Contains(text.String(), "evidence of a second effect") && strings.Contains(text.String(), "came too late")
	})
	shown := body(t, in.server.url()+"/metrics")
	require.Contains(t, shown, "\nflightd_overlaps_total 1\n")
	require.Contains(t, shown, "\nflightd_reports_fenced_total 1\n")
}
