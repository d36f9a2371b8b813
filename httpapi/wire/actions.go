package wire

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/strictjson"
)

// ActionPolicy is the policy of an action's jobs: the body of its document, or what a worker brings. In a document, a field that is
// absent has its default. In a worker's policy, it is not compared.
type ActionPolicy struct {
	Policy
	Retry *Retry    `json:"retry,omitzero"`
	Lane  *LaneRule `json:"lane,omitzero"`
}

// LaneRule puts each job of an action into the lane that its input names.
type LaneRule struct {
	By    string `json:"by" limit:"word"` // JSON pointer (RFC 6901) into the input
	Limit int64  `json:"limit,omitzero" limit:"lane_limit"`
}

// ActionRequest is the body of PUT /v1/actions/{name} and of POST /v1/actions/{name}/declare.
type ActionRequest struct {
	ActionPolicy
	DryRun bool   `json:"dry_run,omitzero"` // answer, and change nothing
	Reason string `json:"reason,omitzero" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"`
}

// Action is an action that has a document.
type Action struct {
	Name string `json:"name"`
	ActionPolicy
	Version   string `json:"version"`
	ChangedAt Time   `json:"changed_at"`
	ChangedBy string `json:"changed_by,omitzero"`
	Reason    string `json:"reason,omitzero"`
}

// ActionList is the answer of GET /v1/actions.
type ActionList struct {
	Actions []Action `json:"actions"`
}

// The states of an ActionAnswer.
const (
	ActionCreated    = "created"
	ActionUnchanged  = "unchanged"
	ActionChanged    = "changed"    // by a PUT
	ActionDifferent  = "different"  // of a declaration: the document counts
	ActionUndeclared = "undeclared" // of a declaration: there is no document, and the token may create none
)

// ActionAnswer is the answer to an ActionRequest.
type ActionAnswer struct {
	Status      string             `json:"status"`
	Differences []PolicyDifference `json:"differences,omitempty"`
	Action      *Action            `json:"action,omitzero"` // the document afterwards; absent with a dry run
}

// PolicyDifference is a field in which the policy of a request differs from the document that was there. An empty text means that the
// field is absent.
type PolicyDifference struct {
	Field    string `json:"field"` // as in a file of flightd actions apply
	Own      string `json:"own"`
	Document string `json:"document"`
	Refuses  bool   `json:"refuses,omitzero"` // a worker with this difference must not start
}

// DecodeActionPolicy reads the body of a document. An unknown field is an error: a later version may restrict jobs by it.
func DecodeActionPolicy(body []byte) (*ActionPolicy, *Invalid) {
	var p ActionPolicy
	bad := decode(body, &p)
	return &p, bad
}

// Check rejects a policy that no job can have.
func (p *ActionPolicy) Check() *Invalid {
	policy, bad := p.Policy.Flight()
	if bad == nil {
		var retry flight.RetryPolicy
		if retry, bad = p.Retry.flight(); bad == nil {
			bad = checkRetention(policy, retry.Within)
		}
	}
	switch canLookUp := policy.CanLookUp(); {
	case bad != nil:
		return bad
	case p.ProviderWindowMS > 0 && policy.Recovery != flight.RecoveryResend:
		return BadField("/provider_window_ms", "is allowed only with the recovery resend")
	case p.SettleMS > 0 && !canLookUp:
		return BadField("/settle_ms", "is allowed only with the recovery verify, or with lookup")
	case p.VerifyAttempts > 0 && !canLookUp:
		return BadField("/verify_attempts", "is allowed only with the recovery verify, or with lookup")
	case p.Lane == nil:
		return nil
	case p.Lane.By == "" || !jsontext.Pointer(p.Lane.By).IsValid():
		return setHint(BadField("/lane/by", "must be a JSON pointer into the input, like /customer, not %.100q", p.Lane.By), "begin it with a slash; ~1 stands for a slash in a name, and ~0 for a tilde")
	}
	return nil
}

// Complete sets the fields that are absent to their defaults, as the document stores them.
func (p *ActionPolicy) Complete() {
	p.Recovery = cmp.Or(p.Recovery, flight.RecoveryHold.String())
	retry, _ := p.Retry.flight()
	p.Retry = &Retry{Attempts: int64(retry.Attempts), FirstMS: retry.MinBackoff.Milliseconds(), MaxMS: retry.MaxBackoff.Milliseconds(), WithinMS: retry.Within.Milliseconds()}
	if p.Retention != "" {
		d, _ := ParseRetention(p.Retention)
		p.Retention = FormatRetention(d) // "1d" and "24h" are the same
	}
	if p.Lane != nil {
		p.Lane = &LaneRule{p.Lane.By, max(1, p.Lane.Limit)}
	}
}

// IsZero reports whether the policy says nothing.
func (p *ActionPolicy) IsZero() bool { return *p == ActionPolicy{} }

// Differences returns the fields in which the policy differs from that of a document; with named, only those that the policy has.
func (p *ActionPolicy) Differences(document *ActionPolicy, named bool) (all []PolicyDifference) {
	there := document.fields()
	for i, own := range p.fields() {
		if own.Own != there[i].Own && (own.Own != "" || !named) {
			own.Document = there[i].Own
			all = append(all, own)
		}
	}
	return all
}

// fields returns the texts of all fields in a fixed order. Those that refuse decide whether an effect can happen twice, or in which
// order effects happen.
func (p *ActionPolicy) fields() []PolicyDifference {
	count := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	retry, lane, retention, lookup := cmp.Or(p.Retry, &Retry{}), cmp.Or(p.Lane, &LaneRule{}), p.Retention, ""
	if d, err := ParseRetention(retention); err == nil {
		retention = FormatRetention(d)
	}
	if p.Lookup {
		lookup = "true"
	}
	return []PolicyDifference{
		{Field: "recovery", Own: p.Recovery, Refuses: true},
		{Field: "approval", Own: p.Approval.Text(), Refuses: true},
		{Field: "provider_window", Own: SpanText(p.ProviderWindowMS), Refuses: true},
		{Field: "settle_delay", Own: SpanText(p.SettleMS), Refuses: true},
		{Field: "verify_attempts", Own: count(p.VerifyAttempts), Refuses: true},
		{Field: "lookup", Own: lookup, Refuses: true},
		{Field: "lane.by", Own: lane.By, Refuses: true},
		{Field: "lane.limit", Own: count(lane.Limit), Refuses: true},
		{Field: "retry.attempts", Own: count(retry.Attempts)},
		{Field: "retry.first", Own: SpanText(retry.FirstMS)},
		{Field: "retry.max", Own: SpanText(retry.MaxMS)},
		{Field: "retry.within", Own: SpanText(retry.WithinMS)},
		{Field: "timeout", Own: SpanText(p.AttemptTimeoutMS)},
		{Field: "retention", Own: retention},
	}
}

// SpanText formats milliseconds with FormatDuration; it returns "" for 0.
func SpanText(ms int64) string {
	if ms == 0 {
		return ""
	}
	return FormatDuration(time.Duration(ms) * time.Millisecond)
}

// Fill gives a submission what it does not declare: the policy, the retries and the lane of its action's document. The error is about
// an input that names no lane; policy and retries are set then, too.
func (r *SubmitRequest) Fill(document *ActionPolicy) (bad *Invalid) {
	if r.Policy == (Policy{}) {
		r.Policy = document.Policy
	}
	r.Retry = cmp.Or(r.Retry, document.Retry)
	if r.Lane != "" || document.Lane == nil {
		return nil
	}
	if r.Lane, bad = laneOf(r.Input, document.Lane.By); bad == nil && r.LaneLimit == 0 {
		r.LaneLimit = document.Lane.Limit
	}
	return bad
}

// laneOf returns the text, number or boolean of an input that a JSON pointer names, as the name of a lane.
func laneOf(input json.RawMessage, by string) (string, *Invalid) {
	missing := func(what string) (string, *Invalid) {
		return "", setHint(BadField("/input"+by, "%s; the document of the action takes the lane of each job from here", what), "send a text, a number or a boolean there, or name the lane in the submission")
	}
	at := []byte(input)
	for name := range jsontext.Pointer(by).Tokens() {
		var object map[string]json.RawMessage
		var array []json.RawMessage
		i, err := strconv.ParseUint(name, 10, 31)
		switch {
		case json.Unmarshal(at, &object) == nil && object[name] != nil:
			at = object[name]
		case err == nil && strconv.FormatUint(i, 10) == name && json.Unmarshal(at, &array) == nil && i < uint64(len(array)):
			at = array[i]
		default:
			return missing("nothing is there")
		}
	}
	value, err := flight.CanonicalJSON(at) // 1.0 and 1 are the same lane
	switch {
	case err != nil || string(value) == "null":
		return missing("nothing is there")
	case value[0] == '{' || value[0] == '[':
		return missing("it is no text, number or boolean")
	case value[0] != '"':
		return string(value), nil
	}
	var lane string
	if err := json.Unmarshal(value, &lane); err != nil || lane == "" {
		return missing("the text is empty")
	}
	return lane, checkLane(lane, "/input"+by)
}

// checkLane rejects a text that is no name of a lane.
func checkLane(lane, pointer string) *Invalid {
	switch {
	case len(lane) > flight.MaxKeyPart:
		return BadField(pointer, "has %d bytes; the limit of a lane is %d", len(lane), flight.MaxKeyPart)
	case strings.ContainsFunc(lane, unicode.IsControl):
		return BadField(pointer, "has a control character, which no lane has")
	}
	return nil
}

// Encode returns the body of the document of an action with this policy.
func (p *ActionPolicy) Encode() []byte { return strictjson.Append(nil, p) }
