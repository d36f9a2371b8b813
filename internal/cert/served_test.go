package cert

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The files are read at most once in a second.
func TestServed_FilesAreReadRarely(t *testing.T) {
	store := Store{Dir: t.TempDir()}
	write := func() {
		_, err := store.InitServer(nil, 1)
		require.NoError(t, err)
	}
	synctest.Test(t, func(t *testing.T) {
		write()
		s, err := Serve(Files{Cert: store.path("server.crt"), Key: store.path("server.key")}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		first := s.current()
		write()
		time.Sleep(time.Second - 1)
		require.Same(t, first, s.current(), "within the second")
		time.Sleep(time.Nanosecond)
		require.NotSame(t, first, s.current(), "after it")
	})
}
