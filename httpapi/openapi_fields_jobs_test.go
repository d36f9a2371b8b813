package httpapi_test

import (
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// jobDocs documents the types and fields of jobs.
func jobDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"SubmitRequest":             {about: "A job: an effect that a worker of the action performs once. The policy of the first submission applies for the life of the key."},
		"Retry":                     {about: "How often a job is handed out again after its effect surely did not happen."},
		"SubmitAnswer":              {about: "The job as the ledger has it."},
		"SubmitLine":                {about: "What became of one line of a submission of many jobs."},
		"ClaimRequest":              {about: "A worker's request for jobs."},
		"ClaimAnswer":               {about: "The jobs that are handed to the worker."},
		"Job":                       {about: "An attempt, or a verification, that is handed to a worker."},
		"SubmitRequest.action":      {about: "the kind of effect, such as `charge`: its workers claim the job", maxLength: flight.MaxKeyPart},
		"SubmitRequest.id":          {about: "the business identifier, such as the order number", maxLength: flight.MaxKeyPart},
		"SubmitRequest.input":       {about: "the input of the effect, JSON by RFC 7493"},
		"SubmitRequest.fingerprint": {about: "as in an open"},
		"lane":                      {about: "jobs of one action with the same lane run in the order of their submission", maxLength: flight.MaxKeyPart},
		"lane_limit":                {about: "how many jobs of the lane may run at once; the smallest of those in the lane counts; absent: one", max: 1000},
		"priority":                  {about: "jobs of one action with a greater priority are handed out first", min: -wire.MaxPriority, max: wire.MaxPriority, defaultValue: 0},
		"run_at":                    {about: "earliest time of the first attempt, in RFC 3339"},
		"delay_ms":                  {about: "earliest time of the first attempt, from now; not together with `run_at`", max: maxLongMS},
		"retry":                     {about: "absent: 8 attempts, with pauses from 1 s to 1 min"},
		"Retry.attempts":            {about: "attempts until the job has failed, the first one included", min: 1, max: 1000},
		"first_ms":                  {about: "the first pause; it doubles with each attempt", max: maxLongMS},
		"max_ms":                    {about: "the longest pause", max: maxLongMS},
		"within_ms":                 {about: "no attempt begins later than this after the first; absent: no bound", max: maxLongMS},
		"SubmitAnswer.status":       {about: "`queued`: the job is new; `duplicate`: the key has a flight already", enum: []string{wire.StatusQueued, wire.StatusDuplicate}},
		"warning":                   {about: "for people: no worker has asked for jobs of this action lately"},
		"SubmitAnswer.flight":       {about: "the flight; with its receipt if it has ended"},
		"SubmitLine.line":           {about: "the number of the line, from 1"},
		"SubmitLine.id":             {about: "the id of the job; absent with a problem"},
		"SubmitLine.status":         {about: "`queued`, `duplicate`, or the code of the problem"},
		"problem":                   {about: "the document that a submission of this job alone would have been answered with"},
		"ClaimRequest.nonce":        {about: "a random text, new for each claim and the same for each repeat", maxLength: 225},
		"ClaimRequest.session":      {about: "the session that holds the jobs"},
		"ClaimRequest.not_after":    {about: "ledger time in milliseconds after which the claim hands out nothing: the wait and 2 s ahead, the same in each repeat. Absent: the node sets it, and you cannot abandon the jobs", max: wire.MaxLedgerTime},
		"ClaimRequest.wait_ms":      {about: "how long to wait for the first job", max: wire.MaxWaitMS},
		"without_look_up":           {about: "those of the actions whose unknown outcomes the worker cannot look up: it is not handed these jobs"},
		"ClaimRequest.callback":     {about: "true: each job has a `callback_url`, if the server has a `public_url`"},
		"actions":                   {about: "the actions that the worker performs; their jobs are handed out in turn", maxItems: wire.MaxClaimActions},
		"slots":                     {about: "how many jobs at most", min: 1, max: wire.MaxSlots},
		"ClaimAnswer.nonce":         {about: "the nonce of the answered claim"},
		"jobs":                      {about: "none: ask again"},
		"served_ms":                 {about: "how long the server took for the answer"},
		"age_ms":                    {about: "how long before this answer the attempt was opened"},
		"retry_after_ms":            {about: "with `not_done`: the provider asked for this pause; a day at most counts"},
	}
}
