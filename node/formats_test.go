package node

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// recordedFormat is what a build returned for the flights in its data directory. testdata/formats/make.sh records it.
type recordedFormat struct {
	Flights   map[string]struct{ Flight, History json.RawMessage } `json:"flights"` // by flight id
	Documents map[string]json.RawMessage                           // by path; from level 2 on
	Open      struct {
		FlightID     string `json:"flight_id"`
		FencingToken string `json:"fencing_token"`
	} `json:"open"` // an attempt that was open when the process was killed
}

// This build opens a data directory of each feature level, whose process was killed in the middle of its work, and returns
// for its flights what the build that wrote it returned.
func TestUpgrade_EachFeatureLevel(t *testing.T) {
	archives, err := filepath.Glob("testdata/formats/level-*.tar.gz")
	require.NoError(t, err)
	require.Len(t, archives, int(flight.MaxLevel), "one data directory for each feature level: see testdata/formats/make.sh")
	for _, archive := range archives {
		name := strings.TrimSuffix(archive, ".tar.gz")
		t.Run(filepath.Base(name), func(t *testing.T) {
			var want recordedFormat
			b, err := os.ReadFile(name + ".json")
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &want))
			require.Greater(t, len(want.Flights), 10)
			data := t.TempDir()
			extract(t, archive, data)
			require.NoError(t, writePlace(data), "it is a copy")

			n := startNode(t, data)
			n.requireFlights(want)
			require.Equal(t, "succeeded", n.get("/v1/flights?key=default/pay/last").(map[string]any)["state"], "the log is ahead of the state")
			report := fmt.Sprintf(`{"fencing_token":%q,"outcome":"succeeded","external_id":"ch_9"}`, want.Open.FencingToken)
			answer, err := http.Post(n.url+"/v1/flights/"+want.Open.FlightID+"/report", "application/json", strings.NewReader(report))
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, http.StatusOK, answer.StatusCode, "the attempt of the older build reports")
			for path, text := range want.Documents {
				var said map[string]any
				require.NoError(t, json.Unmarshal(text, &said))
				got := n.get(path).(map[string]any)
				if entries, ok := got["entries"].([]any); ok { // newest first; this build's rise of the level comes before the recorded ones
					got["entries"] = entries[max(0, len(entries)-len(said["entries"].([]any))):]
				}
				requireContains(t, path, got, said)
			}
			require.EqualValues(t, flight.MaxLevel, n.get("/version").(map[string]any)["feature_level"])
			n.end()

			delete(want.Flights, want.Open.FlightID)
			n = startNode(t, data)
			n.requireFlights(want)
			n.end()
		})
	}
}

// requireFlights checks that the node says everything of the flights that was recorded. It may say more.
func (n *runningNode) requireFlights(want recordedFormat) {
	n.t.Helper()
	for id, recorded := range want.Flights {
		for path, text := range map[string]json.RawMessage{"": recorded.Flight, "/events": recorded.History} {
			var said any
			require.NoError(n.t, json.Unmarshal(text, &said))
			requireContains(n.t, id+path, n.get("/v1/flights/"+id+path), said)
		}
	}
}

// requireContains checks that got has every field of want.
func requireContains(t *testing.T, at string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		require.True(t, ok, at)
		for name, value := range want {
			requireContains(t, at+"/"+name, fields[name], value)
		}
	case []any:
		list, ok := got.([]any)
		require.True(t, ok, at)
		require.Len(t, list, len(want), at)
		for i := range want {
			requireContains(t, fmt.Sprint(at, "/", i), list[i], want[i])
		}
	default:
		require.Equal(t, want, got, at)
	}
}

func (n *runningNode) get(path string) (v any) {
	n.t.Helper()
	answer, err := http.Get(n.url + path)
	require.NoError(n.t, err)
	defer answer.Body.Close()
	require.NoError(n.t, json.NewDecoder(answer.Body).Decode(&v))
	return v
}

// extract unpacks an archive into dir.
func extract(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o700))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if h.Typeflag == tar.TypeLink { // a snapshot links to the files of the state
			require.NoError(t, os.Link(filepath.Join(dir, filepath.Clean("/"+h.Linkname)), path))
			continue
		}
		out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = io.Copy(out, r)
		require.NoError(t, errors.Join(err, out.Close()))
	}
}
