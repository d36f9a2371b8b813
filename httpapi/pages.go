package httpapi

import (
	"bytes"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// Content types of the text that this package writes.
const (
	typePlain    = "text/plain; charset=utf-8"
	typeMarkdown = "text/markdown; charset=utf-8"
	typeHTML     = "text/html; charset=utf-8"
)

// problemPage serves GET /problems/{code}, the URL in the type of a problem: as HTML for browsers, as JSON on request,
// else as Markdown, which reads well in a terminal.
func (a *api) problemPage(w http.ResponseWriter, r *http.Request) {
	class, known := wire.Code(r.PathValue("code")).Class()
	if !known {
		a.writeInvalid(w, r, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "unknown problem code"}})
		return
	}
	page := pageOf(class)
	w.Header().Set("Vary", "Accept")
	switch negotiate(r.Header["Accept"], typeMarkdown, typeHTML, wire.TypeJSON) {
	case wire.TypeJSON:
		a.writeJSON(w, r, http.StatusOK, page)
	case typeHTML:
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		writeResponse(w, r, http.StatusOK, []string{typeHTML}, page.html)
	default:
		writeResponse(w, r, http.StatusOK, []string{typeMarkdown}, page.markdown)
	}
}

// page is the documentation of a code, with an example.
type page struct{ wire.ProblemPage }

func pageOf(c wire.Class) page {
	return page{wire.ProblemPage{Code: c.Code, Status: c.Status, Title: c.Title, Retryable: c.Retryable, Description: c.Description, Hint: c.Hint,
		Example: renderProblem(sample(c.Code))}}
}

// renderProblem returns a problem as a caller receives it.
func renderProblem(p *wire.Problem) []byte {
	out := &recorder{header: http.Header{wire.HeaderRequestID: {"req_4f9a21c07b-1"}}}
	writeProblem(out, &http.Request{Method: http.MethodGet}, p)
	return out.Bytes()
}

// recorder is an http.ResponseWriter that keeps the body.
type recorder struct {
	bytes.Buffer
	header http.Header
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(int)     {}

// RetryAdvice states whether the same request may be sent again.
func (p page) RetryAdvice() string {
	if p.Retryable {
		return "You may send the same request again."
	}
	return "Repeating the same request does not help."
}

// Sample returns the example, one field per line.
func (p page) Sample() string { return indentJSON(p.Example) }

func (p page) markdown(b []byte) []byte {
	for _, part := range []string{"# " + string(p.Code) + " (" + strconv.Itoa(p.Status) + ")\n\n" + p.Title + ".\n\n",
		p.Description + " " + p.RetryAdvice() + "\n\n", "**What to do:** " + p.Hint + ".\n\n", "```json\n" + p.Sample() + "\n```\n"} {
		b = append(b, part...)
	}
	return b
}

var htmlPage = template.Must(template.New("problem").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Code}} - flightd</title>
<style>body{font:1em/1.5 system-ui,sans-serif;max-width:44em;margin:3em auto;padding:0 1em}pre{overflow:auto;padding:1em;background:#f4f4f4}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}pre{background:#242424}}</style>
<h1><code>{{.Code}}</code> ({{.Status}})</h1>
<p><strong>{{.Title}}.</strong></p>
<p>{{.Description}} {{.RetryAdvice}}</p>
<p><strong>What to do:</strong> {{.Hint}}.</p>
<pre>{{.Sample}}</pre>
</html>
`))

func (p page) html(b []byte) []byte {
	out := &strings.Builder{}
	_ = htmlPage.Execute(out, p) // neither the fixed template nor a strings.Builder can fail
	return append(b, out.String()...)
}

// sample returns an example problem. It is built like real problems, so that the pages show real answers.
func sample(code wire.Code) *wire.Problem {
	if at, found := sampleFields()[code]; found {
		return problemOfInvalid(&wire.Invalid{Code: code, FieldError: at})
	}
	key := flight.MustKey("default/charge/order-42")
	switch code {
	case wire.InFlight:
		return problemOf(&effect.Busy{Key: key, State: flight.StateRunning, RetryAfter: time.Second})
	case wire.InDoubt:
		return problemOf(&effect.InDoubt{Key: key, Version: sampleVersion(), Cause: "attempt 1: connection lost after sending"})
	case wire.Fenced:
		return problemOf(&effect.Fenced{Key: key})
	case wire.OpenExpired:
		return problemOf(&effect.OpenExpired{Key: key, LedgerTime: 1_769_860_830_000})
	case wire.SessionInUse:
		return problemOf(&effect.SessionInUse{Session: "ses_1", Open: 2})
	case wire.RateLimited:
		return problemOf(&auth.RateLimited{Limit: "namespace billing may open 200 flights a second at this node", RetryAfter: time.Second})
	case wire.QuotaExceeded:
		return problemOf(&effect.QuotaExceeded{Key: key, Limit: "namespace default may store 1000000 flights", RetryAfter: operatorRetryAfter})
	case wire.TooManyOpen:
		return problemOf(&effect.TooMany{Key: key, Limit: "the key has 256 used nonces", RetryAfter: time.Minute})
	case wire.ApprovalPending:
		return problemOf(&effect.Unapproved{Key: key})
	case wire.LeaseLost:
		return problemOf(&effect.LeaseLost{Key: key})
	case wire.Expired:
		return problemOf(&effect.Expired{Key: key, Outcome: flight.StateSucceeded})
	case wire.Conflict:
		return problemOf(&effect.Conflict{Key: key, Fields: []string{"/amount"}})
	case wire.NotFound:
		return problemOf(&effect.Missing{ID: key.FlightID()})
	case wire.NoLeader, wire.LeaseUnavailable, wire.ReportPending, wire.Draining, wire.Reconciling:
		return problemOf(&effect.Unavailable{Code: string(code)})
	case wire.PreconditionFailed:
		p := newKeyProblem(code, key, 0)
		p.State, p.Version, p.Detail = flight.StateSucceeded.String(), formatVersion(sampleVersion()), "the flight is succeeded at version 8123.4"
		return p
	case wire.FlightFailed:
		f := &flight.Flight{Key: key, ID: key.FlightID(), State: flight.StateCancelled, Version: sampleVersion(), Generation: 1, InputGeneration: 1, AttemptCount: 1}
		return failedProblem(f, wire.FlightOf(f, nil, true))
	}
	return newKeyProblem(code, flight.Key{}, 0)
}

func sampleVersion() flight.Version {
	v, _ := flight.ParseVersion("8123.4")
	return v
}

// sampleFields returns an example field error for each code that names a field.
func sampleFields() map[wire.Code]wire.FieldError {
	return map[wire.Code]wire.FieldError{
		wire.KeyRequired:          {Pointer: "/id", Detail: "missing"},
		wire.KeyInvalid:           {Pointer: "/id", Detail: "character 6 is ' '; write %20"},
		wire.InputInvalid:         {Pointer: "/recovery", Detail: "must be hold, resend or verify"},
		wire.Unauthenticated:      {Header: wire.HeaderAuthorization, Detail: auth.ErrMissing.Error()},
		wire.Forbidden:            {Header: wire.HeaderAuthorization, Detail: "the token has the verbs read, but this request needs submit"},
		wire.MethodNotAllowed:     {Detail: "this path does not support PUT"},
		wire.UnsupportedMediaType: {Header: "Content-Type", Detail: `"text/plain" is not supported here`},
		wire.PayloadTooLarge:      {Pointer: "/input", Detail: "longer than 256 KiB"},
		wire.PreconditionRequired: {Header: "If-Match", Detail: "missing"},
	}
}

// negotiate returns the offer that Accept prefers. It returns the first offer if Accept has no preference or matches no
// offer: an answer in another type is better than none.
func negotiate(accept []string, offers ...string) string {
	best, most := offers[0], 0.0
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, weight := mediaRange(part)
		i := slices.IndexFunc(offers, func(offer string) bool { return strings.HasPrefix(offer, kind) })
		if i >= 0 && weight > most {
			best, most = offers[i], weight
		}
	}
	return best
}

// mediaRange parses one element of Accept: a type and its weight.
func mediaRange(s string) (kind string, weight float64) {
	kind, parameters, _ := strings.Cut(s, ";")
	kind, weight = strings.ToLower(strings.TrimSpace(kind)), 1
	for p := range strings.SplitSeq(parameters, ";") {
		if value, found := strings.CutPrefix(strings.TrimSpace(p), "q="); found {
			q, err := strconv.ParseFloat(value, 64)
			if err != nil || q < 0 || q > 1 {
				q = 0
			}
			weight = q
		}
	}
	kind = strings.TrimSuffix(kind, "*")
	if kind == "*/" {
		kind = ""
	}
	return kind, weight
}
