//go:build clients

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// The rules of values, at every entrance of every client, the command, HTTP and files:
//
//   - A value is kept as it is, digit by digit and character by character, or it is rejected before anything is opened, with the
//     field and the reason. Nothing is dropped, cut, rounded or replaced.
//   - After the effect nothing is rejected. The caller that acted keeps its value and the external id. If JSON cannot hold the value,
//     the receipt has the reason, and every other caller gets the error receipt_truncated.
//   - The bytes of a provider's answer are the body of the receipt.
//
// TestOddValues is the table of these rules. A cell is a value at an entrance; the test prints each one.

// odd is a row of the table: the JSON that is kept, or the words of the reason for which the value is rejected. Where a language
// differs, its row has the name of the language; a language without a row of its own, and without JSON and words, has no such value.
type odd struct {
	name      string
	in        string // the languages that have the value; "": all
	json      string
	reject    string // a regular expression
	resultsOK bool   // results may have it, because JSON can hold it, and inputs may not (RFC 7493)
}

const (
	surrogate = `surrogate|UTF-8`
	noJSON    = `JSON cannot hold|json: `
)

func oddValues() []odd {
	return []odd{
		{name: "NaN", reject: `(?i)nan`}, {name: "Infinity", reject: `(?i)inf`}, {name: "-Infinity", reject: `(?i)inf`},
		{name: "2^53+1", json: "9007199254740993", reject: `2\^53`, resultsOK: true},
		{name: "2^64", in: "python typescript", json: "18446744073709551616", reject: `2\^53`, resultsOK: true},
		{name: "1.0", in: "python", json: "1.0"}, {name: "1.0", in: "go typescript", json: "1"}, {name: "0.1+0.2", json: "0.30000000000000004"},
		{name: "empty text", json: `""`}, {name: "empty list", json: `[]`}, {name: "empty object", json: `{}`}, {name: "null", json: `null`}, {name: "null in a list", json: `[null]`},
		{name: "enum", in: "go python", json: `"red"`}, {name: "enum of numbers", in: "go python", json: `3`},
		{name: "dataclass", in: "go", json: `{"number":"4242","until":"2026-01-02T00:00:00Z"}`}, {name: "dataclass", in: "python", json: `{"number":"4242","until":"2026-01-02"}`},
		{name: "dataclass", in: "typescript", json: `{"number":"4242","until":"2026-01-02T00:00:00.000Z"}`}, {name: "named tuple", in: "python", json: `[1,2]`},
		{name: "date with zone", in: "go", json: `"2026-01-02T03:04:05Z"`}, {name: "date with zone", in: "python", json: `"2026-01-02T03:04:05+00:00"`},
		{name: "date with zone", in: "typescript", json: `"2026-01-02T03:04:05.000Z"`}, {name: "date without zone", in: "python", reject: `no time zone`},
		{name: "date without zone", in: "typescript", reject: noJSON}, {name: "day", in: "python", json: `"2026-01-02"`},
		{name: "uuid", in: "python", json: `"00000000-0000-0000-0000-000000000001"`}, {name: "decimal", in: "python", json: `"19.10"`}, {name: "decimal NaN", in: "python", reject: `NaN`},
		{name: "bytes", in: "go", json: `"AP8="`}, {name: "bytes", in: "python typescript", reject: noJSON}, {name: "byte order mark", json: `"\ufeffx"`},
		{name: "NFC", json: `"\u00e9"`}, {name: "NFD", json: `"e\u0301"`}, {name: "half a surrogate", reject: surrogate}, {name: "map", in: "typescript", json: `{"a":1}`},
		{name: "map with numbers", in: "go python", json: `{"1":"a"}`}, {name: "map with numbers", in: "typescript", reject: `not a string`}, {name: "map of mixed keys", in: "python", reject: `repeats`},
		{name: "set", in: "python", reject: noJSON}, {name: "set", in: "typescript", json: `[1]`}, {name: "cycle", reject: `contains itself|cycle`}, {name: "function", reject: noJSON},
		{name: "undefined in a list", in: "typescript", reject: noJSON}, {name: "error", in: "typescript", reject: noJSON},
	}
}

func (o odd) has(language string) bool {
	return o.in == "" || slices.Contains(strings.Fields(o.in), language)
}

const notASCII = `write %|NFC|printable ASCII|(action|name|lane|id).*(letters|characters|ASCII)`

// oddNames are used as actions, ids and lanes. A name is kept exactly or rejected.
func oddNames() []odd {
	return []odd{
		{name: "empty", reject: `empty|missing|at least one character`}, {name: "null", in: "python typescript", reject: `at least one character`}, {name: "undefined", in: "typescript", reject: `at least one character`},
		{name: "zero", in: "python typescript", reject: `at least one character`}, {name: "number", in: "python typescript", reject: `at least one character`},
		{name: "bytes", in: "python typescript", reject: `at least one character`}, {name: "enum", in: "python", json: `red`}, {name: "uuid", in: "python", json: `00000000-0000-0000-0000-000000000001`},
		{name: "byte order mark", reject: notASCII}, {name: "NFC", reject: notASCII}, {name: "NFD", reject: notASCII}, {name: "half a surrogate", reject: surrogate + "|" + notASCII + `|at least one character`},
		{name: "long", reject: `255|long`}, {name: "space", reject: notASCII},
	}
}

func oddDurations() []odd {
	return []odd{
		{name: "NaN", in: "python typescript", reject: `duration`}, {name: "Infinity", in: "python typescript", reject: `duration`}, {name: "negative", reject: `duration|negative|allowed|whole number from 0`},
		{name: "a tenth of a millisecond", reject: `duration|millisecond|allowed`}, {name: "millisecond", json: "1"}, {name: "400 days", reject: `a year|at most|366`}, {name: "1e300", in: "python typescript", reject: `ms|number|at most|integer|range`},
		{name: "text", in: "python typescript", reject: `duration`}, {name: "zero", json: "0"}, {name: "null", in: "python", json: "0"},
	}
}

// oddAnswers are answers of providers, by content type and body.
var oddAnswers = [][2]string{
	{"application/json", `{"id": 7615917337495251231,  "price": 19.10}`}, {"application/json", "\ufeff[1]"}, {"application/json; charset=iso-8859-1", "{\"a\": \"\xe9\"}"},
	{"application/json", `{"a": NaN}`}, {"application/json", `[1e400, -0.0]`}, {"application/json", `{"a":1,"a":2}`}, {"application/json; charset=utf-16", "[\x00]\x00"},
	{"application/pdf", "\x00\xff"}, {"application/problem+json", `{"b": 1.0}`}, {"application/json", "\xff"},
}

// cells are the results of one run.
type cells struct {
	t    *testing.T
	mu   sync.Mutex
	rows []string
}

// check records a cell of the table. got is the stored value, and rejected is the reason of a rejection.
func (c *cells) check(where string, want odd, got, rejected string) {
	result := "kept: " + got
	if rejected != "" {
		result = "rejected: " + rejected
	}
	bad := ""
	switch {
	case rejected != "" && (want.reject == "" || !regexp.MustCompile(want.reject).MatchString(rejected)):
		bad = "wanted " + cmp.Or(want.json, "a rejection for "+want.reject)
	case rejected == "" && want.json == "":
		bad = "wanted a rejection for " + want.reject
	case rejected == "" && exact(got) != exact(want.json):
		bad = "CHANGED; wanted " + want.json
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, fmt.Sprintf("%-28s %-26s %.160s", where, want.name, result))
	if bad != "" {
		c.t.Errorf("%s, %s: %s: %s", where, want.name, result, bad)
	}
}

// exact returns JSON in one spelling that keeps each digit, or a text as it is.
func exact(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(out)
}

func TestOddValues(t *testing.T) {
	t.Parallel()
	s, c := newServer(t), &cells{t: t}
	t.Run("clients", func(t *testing.T) {
		for _, l := range languages() {
			if wanted()[l.name] {
				t.Run(l.name, func(t *testing.T) {
					t.Parallel()
					l.requireReady(t)
					putThroughClient(newTrial(t, l, "odd", s), c)
				})
			}
		}
	})
	t.Run("http", func(t *testing.T) { putThroughHTTP(t, s, c) })
	t.Run("command", func(t *testing.T) { putThroughCommand(t, s, c) })
	slices.Sort(c.rows)
	t.Logf("%d cells:\n%s", len(c.rows), strings.Join(c.rows, "\n"))
}

// stored returns the bytes of a flight's input or receipt, or "" without one.
func (s *server) stored(key, what string) (contentType, body string) {
	s.t.Helper()
	answer, err := s.request(http.MethodGet, "/v1/flights/"+flight.MustKey(key).FlightID().String()+"/"+what, "")
	require.NoError(s.t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	if answer.StatusCode != http.StatusOK {
		return "", ""
	}
	return answer.Header.Get("Content-Type"), string(data)
}

// vOf returns the field v of a document, byte for byte.
func vOf(t testing.TB, document string) string {
	t.Helper()
	var d struct{ V json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(document), &d), "%q", document)
	return string(d.V)
}

func putThroughClient(t *trial, c *cells) {
	d, language := t.driver(), t.language.name
	where := func(entrance string) string { return language + " " + entrance }
	put := func(action, id, entrance, name string) answer {
		return d.do(call{Name: action, ID: id, Odd: name, Entrance: entrance, Effect: t.provider.url + "/effect"})
	}
	action := "odd-" + language
	require.Empty(t, put(action+"-work", "", "work", "").Error)
	for i, v := range oddValues() {
		if !v.has(language) {
			continue
		}
		input, result := v, v
		if v.resultsOK {
			input.json, result.reject = "", ""
		}
		for _, entrance := range []string{"call", "submit"} {
			id := fmt.Sprintf("%s-%d", entrance, i)
			a := put(action, id, entrance, v.name)
			kept := ""
			if a.Error == "" {
				_, kept = t.server.stored("default/"+action+"/"+id, "input")
				require.NotEmpty(t, kept, "%s %s: %+v", entrance, v.name, a)
				kept = vOf(t, kept)
			} else {
				require.Contains(t, a.Detail, "input", "a rejection names the field: %+v", a)
				require.Empty(t, t.server.flight("default/"+action+"/"+id).State, "%s: an attempt was opened", v.name)
			}
			c.check(where(entrance), input, kept, a.Detail)
		}
		resultCell := func(entrance, key string) {
			kind, body := t.server.stored(key, "receipt")
			f := t.server.flight(key)
			require.Equal(t, "succeeded", f.State, "%s %s", entrance, v.name)
			require.Equal(t, uint32(1), f.Attempts)
			if strings.Contains(kind, "flightd=incomplete") {
				c.check(where(entrance), result, "", body)
				return
			}
			c.check(where(entrance), result, vOf(t, body), "")
		}
		id := fmt.Sprintf("result-%d", i)
		a := put(action, id, "result", v.name)
		require.Empty(t, a.Error, "%s: %s", v.name, a.Detail)
		require.Equal(t, "kept "+map[bool]string{true: "replayed", false: "receipt_truncated"}[result.json != ""], a.Source, v.name)
		require.Equal(t, "ch_1", t.server.flight("default/"+action+"/"+id).Receipt.ExternalID)
		resultCell("result", "default/"+action+"/"+id)
		key := fmt.Sprintf("default/%s-work/%d", action, i)
		answer, err := t.server.request(http.MethodPost, "/v1/flights:submit", fmt.Sprintf(`{"action":"%s-work","id":"%d","input":{"odd":%q}}`, action, i, v.name))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Less(t, answer.StatusCode, 300)
		t.server.waitFlight(key, "is over", waitTimeout, succeeded)
		resultCell("worker's result", key)
	}
	for i, v := range oddNames() {
		for _, entrance := range []string{"action", "id", "lane"} {
			if !v.has(language) || entrance == "lane" && (v.name == "undefined" || v.name == "null" && language == "python") { // no lane is given
				continue
			}
			id := fmt.Sprintf("name-%s-%d", entrance, i)
			a := put(action, id, entrance, v.name)
			want, got := v, a.Source
			switch entrance {
			case "lane":
				laneRules(&want)
				if a.Error == "" {
					got = t.sentField(id, "lane")
				}
			case "action":
				want.json = strings.Replace("default/X/"+id, "X", v.json, 1)
			default:
				want.json = "default/" + action + "/" + v.json
			}
			if v.json == "" && entrance != "lane" {
				want.json = ""
			}
			c.check(where(entrance), want, got, a.Detail)
		}
	}
	for i, v := range oddDurations() {
		for entrance, field := range map[string]string{"delay": "delay_ms", "timeout": "attempt_timeout_ms", "window": "provider_window_ms", "settle": "settle_ms"} {
			if !v.has(language) {
				continue
			}
			id := fmt.Sprintf("duration-%s-%d", entrance, i)
			a := put(action, id, entrance, v.name)
			kept := ""
			if a.Error == "" {
				kept = t.sentField(id, field)
			}
			if entrance == "delay" && v.name == "400 days" {
				v.json = "34560000000" // ten years at most
			}
			c.check(where(entrance), v, kept, a.Detail)
		}
	}
	for i, v := range oddAnswers {
		provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", v[0])
			_, _ = w.Write([]byte(v[1]))
		}))
		id := fmt.Sprintf("provider-%d", i)
		a := d.do(call{Name: action, ID: id, Entrance: "provider", Effect: provider.URL})
		provider.Close()
		require.Empty(t, a.Error, "%s: %s", v[1], a.Detail)
		kind, body := t.server.stored("default/"+action+"/"+id, "receipt")
		require.Equal(t, v[1], body, "the bytes of the provider")
		c.check(where("provider"), odd{name: fmt.Sprintf("%q", v[1])[:min(24, len(fmt.Sprintf("%q", v[1])))], json: fmt.Sprint(v)}, fmt.Sprint([2]string{kind, body}), "")
	}
}

// laneRules changes the row of a name into that of a lane, which is any text.
func laneRules(o *odd) {
	switch o.name {
	case "byte order mark":
		o.json = "\ufeffx"
	case "NFC":
		o.json = "\u00e9"
	case "NFD":
		o.json = "e\u0301"
	case "space":
		o.json = "a b"
	}
	if o.json != "" {
		o.reject = notASCII
	}
}

// sentField returns a field of the submission of an id; "0" if it has none.
func (t *trial) sentField(id, field string) string {
	t.Helper()
	for _, r := range t.proxy.requests(":submit") {
		var sent map[string]any
		d := json.NewDecoder(strings.NewReader(r.body))
		d.UseNumber()
		if d.Decode(&sent) == nil && sent["id"] == id {
			return fmt.Sprint(cmp.Or(sent[field], any(json.Number("0"))))
		}
	}
	t.Fatalf("%s was not submitted", id)
	return ""
}

// oddLiterals are values in the JSON of a request or a file.
func oddLiterals() []odd {
	return []odd{
		{name: "NaN", reject: `invalid|not JSON`}, {name: "Infinity", reject: `invalid|not JSON`}, {name: "1e400", reject: `double|1e400`}, {name: "9007199254740993", reject: `double|9007199254740993`},
		{name: "1.0", json: "1.0"}, {name: "1e3", json: "1e3"}, {name: `""`, json: `""`}, {name: "null", json: "null"}, {name: `"\ud800"`, reject: `surrogate`}, {name: `"\ufeffx"`, json: `"\ufeffx"`},
		{name: `"é"`, json: `"é"`}, {name: `"é"`, json: `"é"`}, {name: `{"a":1,"a":2}`, reject: `(?i)duplicate|twice|unique`}, {name: "\"\xff\"", reject: `UTF-8`}, {name: "", reject: `invalid|not JSON`},
		{name: strings.Repeat("9", 5000), reject: `double|number`}, {name: strings.Repeat("[", 2000) + strings.Repeat("]", 2000), reject: `deep|nest|depth`},
	}
}

// isJSON reports whether a text is JSON in valid UTF-8. Clients send any other body as base64.
func isJSON(text string) bool {
	return json.Valid([]byte(text)) && utf8.ValidString(text) && !strings.Contains(text, `\ud800`)
}

func short(name string) string { return fmt.Sprintf("%.24q", name) }

func (s *server) send(method, path, body string, header ...string) (status int, text string) {
	s.t.Helper()
	answer, err := s.request(method, path, body, header...)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer.StatusCode, string(data)
}

func putThroughHTTP(t *testing.T, s *server, c *cells) {
	status, text := s.send(http.MethodPut, "/v1/sagas/odd/versions/1", `{"saga":"odd","steps":[{"name":"a","action":"odd-step","no_undo":true}]}`)
	require.Less(t, status, 300, text)
	entrances := []struct{ name, path, body string }{
		{"open", "/v1/flights:open", `{"action":"odd-http","id":%q,"input":{"v":%s}}`},
		{"open, key decides", "/v1/flights:open", `{"action":"odd-http","id":%q,"input":{"v":%s},"fingerprint":"none"}`},
		{"submit", "/v1/flights:submit", `{"action":"odd-http","id":%q,"input":{"v":%s}}`},
		{"submit, many", "/v1/flights:submit", `{"action":"odd-http","id":%q,"input":{"v":%s}}`},
		{"saga", "/v1/sagas:start", `{"saga":"odd","id":%q,"input":{"v":%s}}`},
	}
	for e, entrance := range entrances {
		for i, v := range oddLiterals() {
			id, action := fmt.Sprintf("%d-%d", e, i), "odd-http"
			if entrance.name == "saga" {
				action = "odd"
			}
			header := []string{"Content-Type", "application/json"}
			if entrance.name == "submit, many" {
				header[1] = "application/x-ndjson"
			}
			status, text := s.send(http.MethodPost, entrance.path, fmt.Sprintf(entrance.body, id, v.name), header...)
			kept := ""
			if status < 300 && !strings.Contains(text, `"problem"`) {
				_, kept = s.stored("default/"+action+"/"+id, "input")
				kept, text = vOf(t, kept), ""
			}
			row := v
			row.name = short(v.name)
			c.check("http "+entrance.name, row, kept, text)
		}
	}
	for i, v := range oddLiterals() { // a provider's JSON is kept byte for byte, also where an input is rejected
		id, row := fmt.Sprintf("report-%d", i), v
		if row.name = short(v.name); isJSON(v.name) {
			row.json, row.reject = v.name, "deep"
		}
		status, text := s.send(http.MethodPost, "/v1/flights:open", fmt.Sprintf(`{"action":"odd-http","id":%q}`, id))
		require.Less(t, status, 300, text)
		var opened struct {
			FlightID string `json:"flight_id"`
			Token    string `json:"fencing_token"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &opened))
		status, text = s.send(http.MethodPost, "/v1/flights/"+opened.FlightID+"/report",
			fmt.Sprintf(`{"fencing_token":%q,"key":"default/odd-http/%s","outcome":"succeeded","body":{"v":%s}}`, opened.Token, id, v.name))
		kept := ""
		if status < 300 {
			_, kept = s.stored("default/odd-http/"+id, "receipt")
			kept, text = vOf(t, kept), ""
			require.Equal(t, v.name, kept)
		}
		c.check("http report", row, kept, text)
	}
}

// putThroughCommand puts values through the command flightd: by a flag, by a file, and by the documents of actions and sagas.
func putThroughCommand(t *testing.T, s *server, c *cells) {
	dir := t.TempDir()
	run := func(stdin string, args ...string) (out string, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, binaries.flightd, args...)
		cmd.Env = environment(append(s.credentialFiles(), "FLIGHTD_ADDR="+s.address(), "XDG_STATE_HOME="+dir)...)
		cmd.Stdin = strings.NewReader(stdin)
		var both bytes.Buffer
		cmd.Stdout, cmd.Stderr = &both, &both
		err = cmd.Run()
		return both.String(), err
	}
	file := filepath.Join(dir, "file")
	for i, v := range oddLiterals() {
		document := `{"v":` + v.name + `}`
		require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
		row := v
		row.name = short(v.name)
		for entrance, args := range map[string][]string{"--input": {"--input", document}, "--input @FILE": {"--input", "@" + file}, "-f": {"-f", file}} {
			id := fmt.Sprintf("%s-%d", strings.Trim(strings.Fields(entrance)[0], "-")+fmt.Sprint(len(entrance)), i)
			args = append([]string{"submit", "odd-command", id}, args...)
			if entrance == "-f" {
				require.NoError(t, os.WriteFile(file+".ndjson", []byte(fmt.Sprintf(`{"id":%q,"input":%s}`, id, document)), 0o600))
				args = []string{"submit", "odd-command", "-f", file + ".ndjson"}
			}
			text, err := run("", args...)
			kept := ""
			if err == nil {
				_, kept = s.stored("default/odd-command/"+id, "input")
				kept, text = vOf(t, kept), ""
			}
			c.check("submit "+entrance, row, kept, text)
		}
	}
	for i, v := range []odd{{name: "--delay 100us", reject: "duration"}, {name: "--timeout 100us", reject: "duration"}, {name: "--delay -1s", reject: "duration"},
		{name: "--delay NaN", reject: "delay"}, {name: "--lane=", reject: "lane"}, {name: "--lane \xff", reject: "lane"}, {name: "--priority 1.5", reject: "priority"}} {
		text, err := run("", append([]string{"submit", "odd-command", fmt.Sprintf("flag-%d", i)}, strings.Fields(v.name)...)...)
		if err == nil {
			text = ""
		}
		v.name = short(v.name)
		c.check("submit", v, "", text)
	}
	for i, body := range []string{"\ufeff{}", "\x00\xff", "e\u0301", "1.0\n", ""} {
		require.NoError(t, os.WriteFile(file, []byte(body), 0o600))
		key := fmt.Sprintf("odd-exec/%d", i)
		text, err := run("", "exec", "--key", key, "--input", file, "--", "cat")
		_, kept := s.stored("default/"+key, "receipt")
		row := odd{name: short(body), json: fmt.Sprintf("%q", body), reject: "empty"}
		if err != nil {
			c.check("exec --input", row, "", text)
			continue
		}
		var printed struct {
			Stdout string
			Bytes  []byte `json:"stdout_base64"`
		}
		require.NoError(t, json.Unmarshal([]byte(kept), &printed))
		c.check("exec --input", row, fmt.Sprintf("%q", printed.Stdout+string(printed.Bytes)), "")
	}
	const duration = `duration|timeout|negative|millisecond|line 2, column 10: `
	for i, v := range []odd{
		{name: ".nan", reject: duration}, {name: ".inf", reject: duration}, {name: "1.0", reject: duration}, {name: "30", reject: duration}, {name: `""`, reject: duration}, {name: "-1s", reject: duration},
		{name: "100us", reject: duration}, {name: "1ms", json: "1"}, {name: "1e3s", reject: duration}, {name: "0100", reject: duration}, {name: "1_000", reject: duration},
		{name: "2026-01-02", reject: duration}, {name: "24h", json: "86400000"}, {name: "1h30m", json: "5400000"},
	} {
		name := fmt.Sprintf("odd-document-%d", i)
		for entrance, document := range map[string]string{
			"actions apply": "action: " + name + "\ntimeout: " + v.name + "\n",
			"sagas apply":   "saga: " + name + "\nsteps:\n  a: { action: x, no_undo: true, timeout: " + v.name + " }\n",
		} {
			text, err := run(document, strings.Fields(entrance)[0], "apply", "-")
			kept := ""
			if err == nil && entrance == "actions apply" {
				_, text = s.send(http.MethodGet, "/v1/actions/"+name, "")
				var a struct {
					Timeout json.Number `json:"attempt_timeout_ms"`
				}
				require.NoError(t, json.Unmarshal([]byte(text), &a))
				kept, text = cmp.Or(a.Timeout.String(), "0"), ""
			} else if err == nil {
				_, text = s.send(http.MethodGet, "/v1/sagas/"+name+"/versions/1", "")
				kept, text = cmp.Or(v.json, text), ""
				if v.json == "" {
					kept = text
				}
			}
			c.check(entrance, v, kept, text)
		}
	}
}
