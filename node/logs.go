package node

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"slices"
	"strings"
)

// httpErrors returns the log of an http.Server. Failed TLS handshakes and HTTP/2 connections that end before their first byte are
// logged at level debug, because every port scanner causes them. All other lines are logged at level error.
func httpErrors(to *slog.Logger) *log.Logger { return log.New(httpErrorWriter{to}, "", 0) }

type httpErrorWriter struct{ *slog.Logger }

func (w httpErrorWriter) Write(line []byte) (int, error) {
	level := slog.LevelError
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) || bytes.Contains(line, []byte("error reading preface from client")) {
		level = slog.LevelDebug
	}
	w.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

// filterHandler is a slog.Handler that drops warnings that etcd and raft log at every start of a single node.
type filterHandler struct{ slog.Handler }

// expectedWarnings lists them. A single voter gets no heartbeat before it elects itself, a member without a network
// needs no signed tokens, and a new member has no storage version before its first entry. That a node of a cluster does not
// answer is said once, by the poller.
func expectedWarnings() []string {
	return []string{
		"raft: heartbeat timeout reached, starting election",
		"etcd: Running http and grpc server on single port. This is not recommended for production.",
		"etcd: simple token is not cryptographically signed",
		"etcd: Failed to detect schema version",
		"etcd: failed to update storage version",
		"raft: Election timeout reached, restarting election",
		"etcd: setting up serving from embedded etcd failed.", // at every stop of a member that listens
	}
}

// campaignTooSoon is the end of etcd's message when the only member campaigns before it has applied its own membership. The member then
// campaigns again.
const campaignTooSoon = "since there are still pending configuration changes to apply"

func filterWarnings(log *slog.Logger) *slog.Logger { return slog.New(filterHandler{log.Handler()}) }

func (h filterHandler) Handle(ctx context.Context, r slog.Record) error {
	if slices.Contains(expectedWarnings(), r.Message) || strings.HasSuffix(r.Message, campaignTooSoon) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h filterHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return filterHandler{h.Handler.WithAttrs(attrs)}
}

func (h filterHandler) WithGroup(name string) slog.Handler {
	return filterHandler{h.Handler.WithGroup(name)}
}
