package wire

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// writer appends one JSON object. Fields that are empty are left out by the methods whose names start with opt.
type writer struct{ b []byte }

func (w *writer) open() { w.b = append(w.b, '{') }

func (w *writer) close() {
	if last := len(w.b) - 1; w.b[last] == ',' {
		w.b[last] = '}'
		return
	}
	w.b = append(w.b, '}')
}

// name writes the name of a field; what follows must be a value and a comma.
func (w *writer) name(name string) {
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

func (w *writer) str(name, value string) {
	w.name(name)
	w.b = append(appendString(w.b, value), ',')
}

func (w *writer) optStr(name, value string) {
	if value != "" {
		w.str(name, value)
	}
}

func (w *writer) int(name string, value int64) {
	w.name(name)
	w.b = append(strconv.AppendInt(w.b, value, 10), ',')
}

func (w *writer) optInt(name string, value int64) {
	if value != 0 {
		w.int(name, value)
	}
}

func (w *writer) bool(name string, value bool) {
	w.name(name)
	w.b = append(strconv.AppendBool(w.b, value), ',')
}

func (w *writer) optBool(name string, value bool) {
	if value {
		w.bool(name, value)
	}
}

func (w *writer) optTime(name string, t Time) {
	if !t.IsZero() {
		w.name(name)
		w.b = append(t.UTC().AppendFormat(w.b, `"`+TimeFormat+`"`), ',')
	}
}

// optRaw writes JSON as it stands.
func (w *writer) optRaw(name string, value []byte) {
	if value != nil {
		w.name(name)
		w.b = append(append(w.b, value...), ',')
	}
}

// optBase64 writes bytes that are there, also when they are none.
func (w *writer) optBase64(name string, value []byte) {
	if value != nil {
		w.name(name)
		w.b = append(w.b, '"')
		w.b = base64.StdEncoding.AppendEncode(w.b, value)
		w.b = append(w.b, '"', ',')
	}
}

// object writes an object inside.
func (w *writer) object(name string, fill func(*writer)) {
	w.name(name)
	w.open()
	fill(w)
	w.close()
	w.b = append(w.b, ',')
}

const hexDigits = "0123456789abcdef"

// appendString writes s as a JSON string. What is not UTF-8 in it becomes U+FFFD: these are texts for people.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			b = append(append(b, s[from:i]...), "\uFFFD"...)
			i++
			from = i
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
