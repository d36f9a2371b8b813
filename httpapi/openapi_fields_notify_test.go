package httpapi_test

import (
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
)

// notifyDocs documents the types and fields of targets of notifications.
func notifyDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"NotifyRequest":           {about: "A target of notifications, as its document stores it."},
		"Notify":                  {about: "A target of notifications."},
		"NotifyList":              {about: "All targets of notifications."},
		"NotifyMask":              {about: "What is removed from the inputs of an action."},
		"NotifyFailure":           {about: "Since when a target has not taken its newest message, and why. Later messages wait behind it."},
		"NotifyTestAnswer":        {about: "What became of a test message."},
		"url":                     {about: "where messages are posted: an absolute URL that begins with https:// or http://. Redirects are not followed"},
		"Notify.url":              {about: "scheme and host of the URL; the rest may be a secret"},
		"NotifyRequest.secret":    {about: "the secret of Standard Webhooks: `whsec_` and the base64 of 24 to 64 bytes; absent: the target keeps its own, and a new one gets a random secret"},
		"Notify.secret":           {about: "the random secret, only in the answer that has created the target"},
		"NotifyRules.events":      {about: "the types of the messages: `" + strings.Join(wire.NotifyEvents(), "`, `") + "`; absent: all"},
		"NotifyRules.namespaces":  {about: "only flights and queues of these namespaces; absent: all. A target of some namespaces gets no `report.quarantined`"},
		"link":                    {about: "the URL of this server in links; absent: its `public_url`"},
		"redact":                  {about: "what is removed from the inputs in messages"},
		"NotifyMask.action":       {about: "the action; `*`: all"},
		"pointers":                {about: "JSON pointers (RFC 6901) into the input; `*` is any member or element, and an empty pointer the whole input"},
		"queue_age_ms":            {about: "how long the oldest ready job of a queue may wait until `queue.old`; absent: 15 minutes", max: maxLongMS},
		"NotifyRequest.reason":    {about: "why; stored in the audit log"},
		"Notify.reason":           {about: "why it was changed last"},
		"Notify.name":             {about: "the name of the target"},
		"Notify.version":          {about: "the version of the document's last change", pattern: versionPattern},
		"notify_failing":          {about: "the targets of notifications that have not taken their newest message for a minute, as the node that leads knows"},
		"failing":                 {about: "absent: the target has taken all messages, as far as the node that leads knows"},
		"since":                   {about: "when the first try failed, or when the node that leads began"},
		"NotifyFailure.error":     {about: "why the last try failed"},
		"targets":                 {about: "by name"},
		"NotifyTestAnswer.id":     {about: "the `webhook-id` of the message"},
		"NotifyTestAnswer.status": {about: "the status of the target's answer; absent: it gave none"},
		"took_ms":                 {about: "how long the target took"},
		"NotifyTestAnswer.error":  {about: "why the target did not take the message; absent: it took it"},
	}
}
