package httpapi_test

import "github.com/flightd/flightd/httpapi/wire"

// actionDocs documents the types and fields of the policies of actions.
func actionDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"ActionRequest":             {about: "The policy of an action's jobs, as a document or as a worker brings it."},
		"Action":                    {about: "An action that has a document, with the policy of its jobs."},
		"ActionList":                {about: "The actions of a namespace that have a document."},
		"ActionAnswer":              {about: "What became of the document."},
		"PolicyDifference":          {about: "A field in which the policy of the request differs from the document."},
		"LaneRule":                  {about: "The lane of each job is named by its input: a text, a number or a boolean. A submission that names a lane overrides it; one whose input names none is rejected."},
		"ActionPolicy.lane":         {about: "absent: a job has the lane of its submission, or none"},
		"by":                        {about: "JSON pointer (RFC 6901) into the input, as in `/customer`"},
		"LaneRule.limit":            {about: "how many jobs of a lane may run at once; absent: one", max: 1000},
		"ActionRequest.reason":      {about: "why; stored in the audit log"},
		"Action.reason":             {about: "why it was changed last"},
		"dry_run":                   {about: "true: answer as if the document were changed, and change nothing"},
		"Action.name":               {about: "the action"},
		"Action.version":            {about: "the version of the document's last change, as in its ETag", pattern: versionPattern},
		"changed_at":                {about: "when the document was changed last"},
		"changed_by":                {about: "who changed it last"},
		"ActionAnswer.status":       {about: "`created`, `unchanged` or `changed`; of a declaration also `different`: the document counts, and `undeclared`: there is none, and the token may create none", enum: []string{wire.ActionCreated, wire.ActionUnchanged, wire.ActionChanged, wire.ActionDifferent, wire.ActionUndeclared}},
		"differences":               {about: "how the policy of the request differs from the document that was there"},
		"ActionAnswer.action":       {about: "the document as it is now; absent with `dry_run`, or if there is none"},
		"ActionList.actions":        {about: "by name"},
		"field":                     {about: "the field, as a file of `flightd actions apply` has it: `recovery`, `retry.attempts`"},
		"own":                       {about: "the value in the request; empty: absent"},
		"PolicyDifference.document": {about: "the value in the document; empty: absent"},
		"refuses":                   {about: "true: a worker with this difference must not start"},
	}
}
