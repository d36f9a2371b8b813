package notify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

const (
	// maxInput bounds the bytes of an input in a message.
	maxInput = 8 << 10
	// maxAttempts bounds the attempts in a message; the newest are shown.
	maxAttempts = 10
	redacted    = "[redacted]"
)

// message is the payload of a webhook. Slack, Teams and Mattermost show its text.
type message struct {
	Type      string `json:"type"`
	Timestamp string `json:"timestamp"` // of the event
	Text      string `json:"text"`
	Data      data   `json:"data"`
}

type data struct {
	// Count is the number of events of a message about several events, and Since is the time of the first one. Rejected is the number
	// of those events with a message that the target has rejected.
	Count      int       `json:"count,omitzero"`
	Rejected   int       `json:"rejected,omitzero"`
	Since      string    `json:"since,omitzero"`
	Key        string    `json:"key,omitzero"`
	Namespace  string    `json:"namespace,omitzero"`
	Action     string    `json:"action,omitzero"`
	State      string    `json:"state,omitzero"` // when the message was made, which may be later than the event
	Generation uint32    `json:"generation,omitzero"`
	Attempt    uint32    `json:"attempt,omitzero"` // the attempt that the event is about
	Attempts   []attempt `json:"attempts,omitempty"`
	Duplicates uint64    `json:"duplicates,omitzero"` // calls that found the flight
	// Input is the input without what is redacted. InputCut: it is too long, and Input is a text with its beginning. InputWithheld: it
	// cannot be redacted, because it is not stored as whole JSON.
	Input         json.RawMessage `json:"input,omitzero"`
	InputCut      bool            `json:"input_cut,omitzero"`
	InputWithheld bool            `json:"input_withheld,omitzero"`
	Report        string          `json:"report,omitzero"`       // node and file
	OldestSince   string          `json:"oldest_since,omitzero"` // of a queue
	Link          string          `json:"link,omitzero"`
	Command       string          `json:"command,omitzero"`
}

type attempt struct {
	Number  uint32 `json:"number"`
	Owner   string `json:"owner,omitzero"`
	SentAt  string `json:"sent_at,omitzero"` // when it was opened: nothing was sent before
	EndedAt string `json:"ended_at,omitzero"`
	Outcome string `json:"outcome,omitzero"`
}

func (m *message) encode() []byte { return strictjson.Append(nil, m) }

func timeText(t flight.Time) string {
	if t == 0 {
		return ""
	}
	return t.AsTime().UTC().Format(time.RFC3339Nano)
}

// id returns the webhook-id of a message: the same for every copy of it, and for no other message.
func (n *Notifier) id(name, since, event, what string) string {
	h := n.cfg.Ledger.Header()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %s %s", h.Deployment, name, since, event, what))
	return "msg_" + hex.EncodeToString(sum[:16])
}

// render returns the message for p, or nil if p needs no message any more.
func (f *follower) render(p *pending) (*message, error) {
	switch {
	case p.Count > 1 || p.Action == rest:
		return f.countMessage(p), nil
	case p.Type == wire.NotifyQueueOld:
		return f.queueMessage(p, f.cfg.Ledger.Now()), nil
	case p.Type == wire.NotifyQuarantined:
		return f.reportMessage(p.Report, p.Since), nil
	}
	fl, err := f.cfg.Ledger.Flight(p.Key.FlightID())
	if err != nil || fl == nil {
		return nil, err
	}
	return f.flightMessage(&flight.FeedEvent{Key: p.Key, HistoryEvent: flight.HistoryEvent{Event: flight.Event{Kind: p.Kind, Generation: p.Generation, Attempt: p.Attempt, At: p.Since}}}, fl)
}

// awaits reports whether this generation of the flight awaits an approval.
func awaits(fl *flight.Flight, generation uint32) bool {
	return fl.State == flight.StateAwaitingApproval && fl.Generation == generation
}

// counted has, for each type of event, its name in the plural, the console page and the command that list these events.
var counted = map[string]struct{ what, page, command string }{
	wire.NotifyInDoubt:     {"doubts", "doubts?text=", "doubt ls"},
	wire.NotifySagaInDoubt: {"doubts of sagas", "doubts?text=", "doubt ls"},
	wire.NotifyOverlap:     {"overlaps", "flights?contains=", "flights ls"},
	wire.NotifyApproval:    {"waiting approvals", "approvals?text=", "approvals ls"},
	wire.NotifyQuarantined: {"quarantined reports", "cluster", "doctor"},
	wire.NotifyQueueOld:    {"old queues", "queues", "queues"},
}

// countMessage returns the message about several events. It has neither their keys nor their inputs.
func (f *follower) countMessage(p *pending) *message {
	c, where, flags, text := counted[p.Type], "", "", ""
	m := &message{Type: p.Type, Timestamp: timeText(p.Since), Data: data{Count: p.Count, Rejected: p.Rejected, Since: timeText(p.Since)}}
	switch {
	case p.Namespace == rest:
		where, flags = " in several namespaces", " -A"
	case p.Namespace != "":
		m.Data.Namespace, where, flags, text = p.Namespace, " in "+p.Namespace, " -n "+quote(p.Namespace), p.Namespace+"/"
		if p.Action != rest {
			m.Data.Action, where, flags, text = p.Action, where+"/"+p.Action, flags+" --action "+quote(p.Action), text+p.Action+"/"
		}
	}
	if p.Type == wire.NotifyQuarantined {
		flags = ""
	}
	page, filtered := strings.CutSuffix(c.page, "=")
	if filtered {
		page += "=" + url.QueryEscape(text)
	}
	m.Data.Link, m.Data.Command = f.link("/console/#/"+page), "flightd "+c.command+flags
	sentence := fmt.Sprintf("New %s%s since %s: %d.", c.what, where, timeText(p.Since), p.Count)
	if p.Rejected > 0 {
		sentence += fmt.Sprintf(" This target has rejected the messages of %d of them.", p.Rejected)
	}
	m.setText(sentence)
	return m
}

// flightMessage returns the message for an event of a flight, or nil if the event needs no message.
func (f *follower) flightMessage(e *flight.FeedEvent, fl *flight.Flight) (*message, error) {
	key := e.Key.String()
	m := &message{Timestamp: timeText(e.At), Data: data{Key: key, Namespace: e.Key.Namespace(), Action: e.Key.Name(), State: fl.State.String(), Generation: e.Generation, Attempt: e.Attempt,
		Link: f.link("/console/#/flight?namespace=" + url.QueryEscape(e.Key.Namespace()) + "&key=" + url.QueryEscape(key))}}
	about, quoted := "", quote(key)
	switch e.Kind {
	case flight.EventInDoubt:
		m.Type, about = wire.NotifyInDoubt, "is in doubt: "
		if strings.Contains(key, "#") {
			m.Type, about = wire.NotifySagaInDoubt, "is in doubt, and its saga waits: "
		}
		why := "its effect may or may not have happened"
		if fl.Generation == e.Generation && fl.State == flight.StateInDoubt && !fl.Tainted() { // an undo, or a step behind the pivot
			why = "its effect did not happen, it must not fail, and it is not tried again by itself"
		}
		about += why
		m.Data.Command = "flightd doubt resolve " + quoted + " --reason WHY --happened --receipt @FILE | --did-not-happen | --fail"
	case flight.EventOverlap:
		m.Type, about = wire.NotifyOverlap, "was reported to have happened twice"
		m.Data.Command = "flightd flights get " + quoted
	default:
		if !awaits(fl, e.Generation) { // no approval was needed, or it is decided
			return nil, nil
		}
		m.Type, about = wire.NotifyApproval, "waits for an approval"
		m.Data.Command = "flightd approvals approve " + quoted + " --reason WHY"
	}
	if fl.Generation == e.Generation {
		for i := max(0, len(fl.Attempts)-maxAttempts); i < len(fl.Attempts); i++ {
			a := &fl.Attempts[i]
			shown := attempt{a.Number, a.Owner, timeText(a.OpenedAt), timeText(a.ClosedAt), ""}
			if !a.IsOpen() {
				shown.Outcome = a.Outcome.String()
			}
			m.Data.Attempts = append(m.Data.Attempts, shown)
			if a.Number == e.Attempt {
				about += fmt.Sprintf(" (attempt %d of %s, sent after %s)", a.Number, a.Owner, timeText(a.OpenedAt))
			}
		}
		input, err := f.cfg.Ledger.Input(fl)
		if err != nil {
			return nil, err
		}
		m.Data.setInput(input, fl.Input.Truncated(), f.target.Redact)
	}
	if fl.Duplicates != nil {
		m.Data.Duplicates = fl.Duplicates.Count
	}
	if e.Kind == flight.EventInDoubt && fl.State != flight.StateInDoubt {
		about += "; now it is " + fl.State.String()
	}
	m.setText(key + " " + about + ".")
	return m, nil
}

func (f *follower) queueMessage(p *pending, now flight.Time) *message {
	m := &message{Type: wire.NotifyQueueOld, Timestamp: timeText(now), Data: data{Namespace: p.Namespace, Action: p.Action, OldestSince: timeText(p.Since),
		Link: f.link("/console/"), Command: "flightd queues -n " + quote(p.Namespace)}}
	m.setText("The oldest ready job of the queue " + p.Namespace + "/" + p.Action + " has waited since " + timeText(p.Since) + ".")
	return m
}

func (f *follower) reportMessage(file string, now flight.Time) *message {
	m := &message{Type: wire.NotifyQuarantined, Timestamp: timeText(now), Data: data{Report: file, Link: f.link("/console/"), Command: "flightd doctor"}}
	m.setText("The report " + file + " cannot be read and is quarantined: a receipt may be lost.")
	return m
}

// link returns the URL of a page, or "" if no URL is known.
func (f *follower) link(page string) string {
	base := f.target.Link
	if base == "" {
		base = f.cfg.PublicURL
	}
	if base == "" {
		return ""
	}
	return strings.TrimSuffix(base, "/") + page
}

// setText sets the text: the sentence, the link and the command. A key or an owner must not mention people in a chat, make a link of its
// own, or look like the command: the characters for that are replaced in the sentence, and the command is marked as code.
func (m *message) setText(sentence string) {
	m.Text = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "@\u200b", "](", "]\u200b(", "://", ":\u200b//", "www.", "www\u200b.",
		"`", "'", "\n", " ", "\r", " ").Replace(sentence)
	if m.Data.Link != "" {
		m.Text += "\n" + m.Data.Link
	}
	m.Text += "\n`" + strings.NewReplacer("<", "&lt;", ">", "&gt;", "`", "%60").Replace(m.Data.Command) + "`"
}

// quote quotes an argument for a shell, if it needs that.
func quote(arg string) string {
	if strings.IndexFunc(arg, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_.:%#-,+=", r)
	}) < 0 {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// setInput sets the input without what the masks of its action remove. An input that has masks and is not whole JSON is withheld.
func (d *data) setInput(input []byte, truncated bool, masks []wire.NotifyMask) {
	if len(input) == 0 {
		return
	}
	var pointers []string
	for _, m := range masks {
		if m.Action == d.Action || m.Action == wire.AllNamespaces {
			pointers = append(pointers, m.Pointers...)
		}
	}
	whole := !truncated && strictjson.Valid(bytes.TrimSpace(input), flight.MaxJSONDepth) // a receiver might reject another one for ever
	if len(pointers) > 0 {
		if !whole {
			d.InputWithheld = true
			return
		}
		var v any
		in := json.NewDecoder(bytes.NewReader(input))
		in.UseNumber()
		if err := in.Decode(&v); err != nil {
			d.InputWithheld = true
			return
		}
		for _, p := range pointers {
			v = redact(v, p)
		}
		input, _ = json.Marshal(v) // it was decoded from JSON
	}
	if whole && len(input) <= maxInput {
		d.Input = input
		return
	}
	d.InputCut = truncated || len(input) > maxInput
	d.Input, _ = json.Marshal(strings.ToValidUTF8(string(input[:min(len(input), maxInput)]), "\uFFFD"))
}

// redact returns v with the values at a pointer replaced. * is every member and element.
func redact(v any, pointer string) any {
	if pointer == "" {
		return redacted
	}
	rest := pointer[1:]
	token, tail := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		token, tail = rest[:i], rest[i:]
	}
	token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if name == token || token == "*" {
				v[name] = redact(v[name], tail)
			}
		}
	case []any:
		for i := range v {
			if token == strconv.Itoa(i) || token == "*" {
				v[i] = redact(v[i], tail)
			}
		}
	}
	return v
}
