package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// etagList is the parsed If-None-Match: the versions that the caller has.
type etagList struct {
	matchAny bool // the header was *
	list     []flight.Version
}

func (l etagList) contains(v flight.Version) bool { return l.matchAny || slices.Contains(l.list, v) }

// parseETags parses If-None-Match: a list of ETags, or *. Weak ETags are accepted, because a proxy may have weakened
// them. An ETag that is not a flight version matches nothing.
func parseETags(lines []string) (s etagList, bad *wire.Invalid) {
	for _, line := range lines {
		for rest := line; ; {
			if rest = strings.TrimLeft(rest, ", \t"); rest == "" {
				break
			}
			var tag string
			var ok bool
			if tag, rest, ok = cutETag(rest); !ok {
				return s, wire.BadHeader("If-None-Match", `it must be a list of quoted ETags, like "8123.4", or *, not %.100q`, line)
			}
			if tag == "*" {
				s.matchAny = true
			} else if v, err := flight.ParseVersion(tag); err == nil {
				s.list = append(s.list, v)
			}
		}
	}
	return s, nil
}

// cutETag splits the first ETag, without its quotes, or * off a list.
func cutETag(list string) (tag, rest string, ok bool) {
	if tag = "*"; list[0] == '*' {
		rest = list[1:]
	} else {
		opaque, quoted := strings.CutPrefix(strings.TrimPrefix(list, "W/"), `"`)
		if tag, rest, ok = strings.Cut(opaque, `"`); !quoted || !ok {
			return "", "", false
		}
	}
	rest = strings.TrimLeft(rest, " \t")
	return tag, rest, rest == "" || rest[0] == ','
}

func parseETag(header, tag string) (flight.Version, *wire.Invalid) {
	inner, quoted := strings.CutPrefix(tag, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	v, err := flight.ParseVersion(inner)
	if !quoted || !closed || err != nil {
		return v, wire.BadHeader(header, `it must be one quoted ETag of a flight, like "8123.4", not %.100q`, tag)
	}
	return v, nil
}

// preferredWait parses wait=N, in seconds, from Prefer. As RFC 7240 requires, unknown and invalid preferences are
// ignored; Preference-Applied names the one that was applied.
func preferredWait(r *http.Request) time.Duration {
	for _, line := range r.Header[wire.HeaderPrefer] {
		for preference, rest := cutUnquoted(line, ','); preference != "" || rest != ""; preference, rest = cutUnquoted(rest, ',') {
			word, _ := cutUnquoted(preference, ';')
			name, value, _ := strings.Cut(word, "=")
			if strings.EqualFold(strings.TrimSpace(name), "wait") { // the first one counts
				return parseWait(strings.Trim(strings.TrimSpace(value), `"`))
			}
		}
	}
	return 0
}

// parseWait converts seconds to a duration, at most wire.MaxWaitMS, or 0 if seconds is not a number.
func parseWait(seconds string) time.Duration {
	n, err := strconv.ParseUint(seconds, 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return min(time.Duration(n)*time.Second, wire.MaxWaitMS*time.Millisecond)
}

// cutUnquoted cuts a header's value at the first separator outside quotes.
func cutUnquoted(s string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}
