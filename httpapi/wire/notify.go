package wire

import (
	"crypto/rand"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/flightd/flightd/internal/strictjson"
)

// The types of notifications.
const (
	NotifyInDoubt     = "flight.in_doubt"
	NotifySagaInDoubt = "saga.in_doubt" // a step or an undo is in doubt, and its saga waits
	NotifyOverlap     = "flight.overlap"
	NotifyApproval    = "approval.waiting"
	NotifyQuarantined = "report.quarantined"
	NotifyQueueOld    = "queue.old"
	NotifyTest        = "test" // only by POST /v1/notify/{name}/test
)

// NotifyEvents returns the types that a target can select.
func NotifyEvents() []string {
	return []string{NotifyInDoubt, NotifySagaInDoubt, NotifyOverlap, NotifyApproval, NotifyQuarantined, NotifyQueueOld}
}

// The bounds of targets of notifications.
const (
	MaxNotifyTargets = 16
	maxNotifyList    = 64          // namespaces, actions with redactions, and pointers of each
	DefaultQueueAge  = 15 * 60_000 // milliseconds
	secretPrefix     = "whsec_"    // of Standard Webhooks
	generatedSecret  = 32          // bytes
	minSecret        = 24          // bytes, as Standard Webhooks demands
	maxSecret        = 64          // bytes
)

// NotifyRules say which events a target is notified of, and with which content.
type NotifyRules struct {
	Events     []string     `json:"events,omitempty"`     // empty: all
	Namespaces []string     `json:"namespaces,omitempty"` // empty: all
	Link       string       `json:"link,omitzero" limit:"text"`
	Redact     []NotifyMask `json:"redact,omitempty"`
	QueueAgeMS int64        `json:"queue_age_ms,omitzero" limit:"ms"` // 0: DefaultQueueAge
}

// NotifyMask lists what is removed from the inputs of an action.
type NotifyMask struct {
	Action   string   `json:"action" limit:"word"` // AllNamespaces: every action
	Pointers []string `json:"pointers"`            // JSON pointers (RFC 6901); * is any member or element, and "" the whole input
}

// NotifyRequest is the body of PUT /v1/notify/{name}.
type NotifyRequest struct {
	URL    string `json:"url" limit:"text"`
	Secret string `json:"secret,omitzero" limit:"word"` // absent: the target keeps its secret, and a new one gets a random secret
	NotifyRules
	Reason string `json:"reason" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"`
}

// Notify is a target of notifications, without its secret and without the path of its URL, which may be one.
type Notify struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	NotifyRules
	Version   string         `json:"version"`
	ChangedAt Time           `json:"changed_at"`
	ChangedBy string         `json:"changed_by,omitzero"`
	Reason    string         `json:"reason,omitzero"`
	Secret    string         `json:"secret,omitzero"` // in the answer that has made it, and nowhere else
	Failing   *NotifyFailure `json:"failing,omitzero"`
}

// NotifyFailure says since when a target has not taken a notification, and why.
type NotifyFailure struct {
	Since Time   `json:"since"`
	Error string `json:"error"`
}

// NotifyList is the answer of GET /v1/notify.
type NotifyList struct {
	Targets []Notify `json:"targets"`
}

// NotifyTestAnswer is the answer of POST /v1/notify/{name}/test.
type NotifyTestAnswer struct {
	ID     string `json:"id"`              // the webhook-id that was sent
	Status int    `json:"status,omitzero"` // of the target's answer; 0: it gave none
	TookMS int64  `json:"took_ms"`
	Error  string `json:"error,omitzero"` // empty: the target has taken it
}

// NotifyTarget is the body of the document of a target. A later version may add fields.
type NotifyTarget struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
	Since  string `json:"since"` // version of the ledger: events up to it are before the target
	NotifyRules
}

// Encode returns the body of the document.
func (t *NotifyTarget) Encode() []byte { return strictjson.Append(nil, t) }

// ShownURL returns scheme and host of the target's URL: its path is a secret at some receivers.
func (t *NotifyTarget) ShownURL() string {
	u, err := url.Parse(t.URL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// Key returns the key that signs the messages; nil if the secret is none.
func (t *NotifyTarget) Key() []byte {
	encoded, ok := strings.CutPrefix(t.Secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil
	}
	return key
}

// NewNotifySecret returns a random secret.
func NewNotifySecret() string {
	key := make([]byte, generatedSecret)
	_, _ = rand.Read(key) // it never returns an error
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// Check rejects a request that no target can have.
func (r *NotifyRequest) Check() *Invalid {
	if bad := checkNotifyURL("/url", r.URL); bad != nil {
		return bad
	}
	if t := (NotifyTarget{Secret: r.Secret}); r.Secret != "" && t.Key() == nil {
		return setHint(BadField("/secret", "must be whsec_ and the base64 of 24 to 64 bytes"), "leave it out, and the answer has a random one")
	}
	if len(r.Namespaces) > maxNotifyList || len(r.Redact) > maxNotifyList {
		return BadField("/namespaces", "and redact have at most %d elements", maxNotifyList)
	}
	for _, e := range r.Events {
		if !slices.Contains(NotifyEvents(), e) {
			return BadField("/events", "unknown event %.100q; allowed: %s", e, strings.Join(NotifyEvents(), ", "))
		}
	}
	for _, ns := range r.Namespaces {
		if bad := CheckName(ns, FieldError{Pointer: "/namespaces"}); bad != nil {
			return bad
		}
	}
	for _, m := range r.Redact {
		if bad := CheckName(m.Action, FieldError{Pointer: "/redact"}); bad != nil && m.Action != AllNamespaces {
			return bad
		}
		if len(m.Pointers) == 0 || len(m.Pointers) > maxNotifyList {
			return BadField("/redact", "the action %s has from 1 to %d pointers", m.Action, maxNotifyList)
		}
		for _, p := range m.Pointers {
			if len(p) > 1024 || !jsontext.Pointer(p).IsValid() {
				return setHint(BadField("/redact", "must have JSON pointers into the input, like /card/number, not %.100q", p), "begin it with a slash; ~1 stands for a slash in a name, and ~0 for a tilde")
			}
		}
	}
	if r.Link != "" {
		return checkNotifyURL("/link", r.Link)
	}
	return nil
}

func checkNotifyURL(field, text string) *Invalid {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || len(text) > 2048 {
		return BadField(field, "must be an absolute URL that begins with http:// or https://, without a user and a fragment")
	}
	return nil
}
