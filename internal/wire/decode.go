package wire

import (
	"encoding/base64"
	"math"
)

// Bounds of strings in requests, in bytes.
const (
	maxWord  = 1024 // beyond every word that is allowed, so that the key's own rules name what is wrong with it
	maxNonce = 255
	maxToken = 512
	maxText  = 64 << 10 // an error or a reason; the ledger keeps the beginning
	maxMS    = int64(10 * 365 * 24 * 3600 * 1000)
)

// DecodeOpen reads the body of an open. raw values are slices of data.
func DecodeOpen(data []byte) (r OpenRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "action":
			r.Action = s.str(maxWord)
		case "id":
			r.ID = s.str(maxWord)
		case "input":
			r.Input = s.raw()
		case "fingerprint":
			r.Fingerprint = s.str(maxWord)
		case "nonce":
			r.Nonce = s.str(maxNonce)
		case "not_after":
			r.NotAfter = s.integer(0, MaxLedgerTime)
		case "session":
			r.Session = s.str(maxToken)
		case "owner":
			r.Owner = s.str(maxWord)
		case "ttl_ms":
			r.TTLMS = s.integer(0, maxMS)
		case "wait_ms":
			r.WaitMS = s.wait()
		default:
			return r.Policy.decode(s, name)
		}
		return true
	})
	return r, bad
}

func (p *Policy) decode(s *scanner, name []byte) bool {
	switch string(name) {
	case "attempt_timeout_ms":
		p.AttemptTimeoutMS = s.integer(0, maxMS)
	case "settle_ms":
		p.SettleMS = s.integer(0, maxMS)
	case "provider_window_ms":
		p.ProviderWindowMS = s.integer(0, maxMS)
	case "recovery":
		p.Recovery = s.str(maxWord)
	case "lookup":
		p.Lookup = s.boolean()
	case "look_tries":
		p.LookTries = s.integer(0, 1000)
	case "retention":
		p.Retention = s.str(maxWord)
	default:
		return false
	}
	return true
}

func (s *scanner) wait() *int64 {
	if s.none {
		return nil
	}
	n := s.integer(0, MaxWaitMS)
	return &n
}

func (b *Body) decode(s *scanner, name []byte) bool {
	switch string(name) {
	case "external_id":
		b.ExternalID = s.str(maxText)
	case "body":
		b.JSON = s.raw()
	case "body_base64":
		b.Base64 = s.base64()
	case "content_type":
		b.ContentType = s.str(maxWord)
	case "truncated":
		b.Truncated = s.boolean()
	case "size":
		b.Size = s.integer(0, math.MaxInt32)
	case "digest":
		b.Digest = s.str(maxWord)
	default:
		return false
	}
	return true
}

// base64 reads a string of standard base64 with padding; not nil where there is one.
func (s *scanner) base64() []byte {
	if s.none {
		return nil
	}
	text := s.str(math.MaxInt)
	if s.err != nil {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		s.wrong("it is not base64 in the standard alphabet with padding: %v", err)
		return nil
	}
	return data
}

// DecodeAbandon reads the body of an abandon.
func DecodeAbandon(data []byte) (r AbandonRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "action":
			r.Action = s.str(maxWord)
		case "id":
			r.ID = s.str(maxWord)
		case "nonce":
			r.Nonce = s.str(maxNonce)
		case "not_after":
			r.NotAfter = s.integer(1, MaxLedgerTime)
		case "reason":
			r.Reason = s.str(maxText)
		default:
			return false
		}
		return true
	})
	return r, bad
}

// DecodeReport reads the body of a report.
func DecodeReport(data []byte) (r ReportRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "fencing_token":
			r.FencingToken = s.str(maxToken)
		case "key":
			r.Key = s.str(maxWord)
		case "outcome":
			r.Outcome = s.str(maxWord)
		case "error":
			r.Error = s.str(maxText)
		default:
			return r.Body.decode(s, name)
		}
		return true
	})
	return r, bad
}

// DecodeVerdict reads the body of a verdict.
func DecodeVerdict(data []byte) (r VerdictRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "probe":
			r.Probe = s.str(maxToken)
		case "result":
			r.Result = s.str(maxWord)
		case "session":
			r.Session = s.str(maxToken)
		case "nonce":
			r.Nonce = s.str(maxNonce)
		case "not_after":
			r.NotAfter = s.integer(0, MaxLedgerTime)
		case "owner":
			r.Owner = s.str(maxWord)
		case "ttl_ms":
			r.TTLMS = s.integer(0, maxMS)
		case "wait_ms":
			r.WaitMS = s.wait()
		default:
			return r.Body.decode(s, name)
		}
		return true
	})
	return r, bad
}

// DecodeOperator reads the body of cancel, retry and free.
func DecodeOperator(data []byte) (r OperatorRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "key":
			r.Key = s.str(maxWord)
		case "reason":
			r.Reason = s.str(maxText)
		case "as":
			r.As = s.str(maxWord)
		default:
			return false
		}
		return true
	})
	return r, bad
}

// DecodeResolve reads the body of a resolve.
func DecodeResolve(data []byte) (r ResolveRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "result":
			r.Result = s.str(maxWord)
		case "reason":
			r.Reason = s.str(maxText)
		case "as":
			r.As = s.str(maxWord)
		default:
			return r.Body.decode(s, name)
		}
		return true
	})
	return r, bad
}

// DecodeEmpty reads the body of a request that says nothing: none at all, or an empty object.
func DecodeEmpty(data []byte) *Invalid {
	if len(data) == 0 {
		return nil
	}
	return readObject(data, func(*scanner, []byte) bool { return false })
}
