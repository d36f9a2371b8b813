package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/strictjson"
)

// MaxLaneLimit is the maximum lane_limit. It bounds the work of one command: a job with a small limit that enters or leaves a lane
// holds or frees up to MaxLaneLimit other jobs.
const MaxLaneLimit = 1000

// limits are the greatest values that the tag `limit` of a field names: the length of a string in bytes, or a number,
// which also must not be negative.
var limits = map[string]int64{
	"word":        1024, // above the limits of the key's own rules, which have the better messages
	"nonce":       255,
	"claim_nonce": 255 - 30, // JobNonce adds 30 bytes, and a caller abandons each job by its own nonce
	"token":       512,
	"text":        64 << 10, // an error or a reason, of which the ledger stores the beginning
	"ms":          10 * 365 * 24 * 3600 * 1000,
	"wait_ms":     MaxWaitMS,
	"ledger_time": MaxLedgerTime,
	"tries":       1000,
	"lane_limit":  MaxLaneLimit,
	"size":        math.MaxInt32,
	"count":       math.MaxInt64,
	"quota":       MaxLimit,
}

// check is one field that has a limit, or has fields with limits.
type check struct {
	index  int
	name   string // in the document; empty: the fields of an embedded struct
	limit  int64
	raw    bool // json.RawMessage: only its depth is limited
	absent bool // null counts as missing
	inner  []check
}

var checks sync.Map // of reflect.Type to []check

// checksOf returns the checks of a struct type, from the tags of its fields.
func checksOf(t reflect.Type) []check {
	if known, ok := checks.Load(t); ok {
		return known.([]check)
	}
	var all []check
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		c := check{index: i, name: name, raw: f.Type == reflect.TypeFor[json.RawMessage](), absent: f.Tag.Get("null") == "absent"}
		limit, limited := limits[f.Tag.Get("limit")]
		c.limit = limit
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[Time]() && f.IsExported() {
			c.inner = checksOf(inner)
		}
		if limited || c.raw || c.inner != nil {
			all = append(all, c)
		}
	}
	checks.Store(t, all)
	return all
}

// checkLimits returns an error about the first field of the struct v that exceeds its limit.
func checkLimits(pointer string, v reflect.Value, all []check) *Invalid {
	for i := range all {
		c := &all[i]
		f := v.Field(c.index)
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				continue
			}
			f = f.Elem()
		}
		switch {
		case c.raw:
			if c.absent {
				f.SetBytes(nullToNil(f.Bytes()))
			}
			if strictjson.Depth(f.Bytes()) > flight.MaxJSONDepth {
				return BadField(pointer+"/"+c.name, "nested deeper than %d levels", flight.MaxJSONDepth)
			}
		case f.Kind() == reflect.Struct:
			at := pointer
			if c.name != "" {
				at += "/" + c.name
			}
			if bad := checkLimits(at, f, c.inner); bad != nil {
				return bad
			}
		case f.Kind() == reflect.String:
			if n := f.Len(); int64(n) > c.limit {
				return BadField(pointer+"/"+c.name, "it has %d bytes; at most %d are allowed", n, c.limit)
			}
		case f.Int() < 0 || f.Int() > c.limit:
			return BadField(pointer+"/"+c.name, "%d is not a whole number from 0 to %d", f.Int(), c.limit)
		}
	}
	return nil
}

// Decode reads the body of a request of type T.
func Decode[T any](data []byte) (r T, bad *Invalid) {
	bad = DecodeInto(data, &r)
	return r, bad
}

// DecodeInto is Decode for a request with fields that do not come from its body.
func DecodeInto(data []byte, r any) *Invalid {
	bad := decode(data, r)
	if own, ok := r.(interface{ normalize() *Invalid }); ok && bad == nil {
		bad = own.normalize()
	}
	return bad
}

// decode is DecodeInto without the rules of the type.
func decode(data []byte, r any) *Invalid {
	if bad := decodeFields(data, r); bad != nil {
		return bad
	}
	v := reflect.ValueOf(r).Elem()
	return checkLimits("", v, checksOf(v.Type()))
}

// decodeFields reads a request strictly, without the limits of its fields. A field that is null counts as missing, except the body of a
// receipt.
func decodeFields(data []byte, r any) *Invalid {
	const hint = "send a JSON object, at least {}"
	switch text := bytes.TrimLeft(data, " \t\r\n"); {
	case len(text) == 0:
		return setHint(BadField("", "the body is empty; a JSON object is expected"), hint)
	case text[0] != '{':
		return setHint(BadField("", "the body is not a JSON object"), hint)
	}
	if err := strictjson.DecodeRequest(data, r); err != nil {
		return invalidJSON(err)
	}
	return nil
}

func invalidJSON(err error) *Invalid {
	var e *strictjson.Error
	if !errors.As(err, &e) {
		return BadField("", "%v", err)
	}
	bad := BadField(e.Pointer, "%s", e.Detail)
	if e.Detail == strictjson.UnknownField {
		bad.Hint = "remove it or fix the spelling; unknown fields are rejected, never ignored"
	}
	return bad
}

// DecodeAnswer reads the answer of a server into the struct that into points to. It accepts unknown fields.
func DecodeAnswer(data []byte, into any) error {
	if err := strictjson.DecodeAnswer(data, into); err != nil {
		return err
	}
	if a, ok := into.(*OpenAnswer); ok {
		a.Input = nullToNil(a.Input)
	}
	if v := reflect.ValueOf(into).Elem(); v.Kind() == reflect.Struct {
		if bad := checkLimits("", v, checksOf(v.Type())); bad != nil {
			return errors.New(bad.Error())
		}
	}
	return nil
}

// nullToNil returns nil for null: an input that is null counts as missing.
func nullToNil(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// ValidJSON reports whether b is one JSON value in valid UTF-8 without white space around it, and not nested too deep
// to be a part of a request. Such a value is carried byte for byte.
func ValidJSON(b []byte) bool { return strictjson.Valid(b, flight.MaxJSONDepth) }

// IsJSONType reports whether a content type says that the body is JSON.
func IsJSONType(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return kind == TypeJSON || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}
