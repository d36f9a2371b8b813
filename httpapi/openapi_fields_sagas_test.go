package httpapi_test

import (
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// sagaDocs documents the types and fields of sagas.
func sagaDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"StartSagaRequest":       {about: "A saga to start: steps that happen together, or are undone."},
		"StartSagaAnswer":        {about: "The saga as the ledger has it."},
		"Saga":                   {about: "A saga and its steps."},
		"SagaStep":               {about: "A step of a saga."},
		"SagaPage":               {about: "A page of the list of sagas, newest first, without steps and receipts."},
		"SagaVersions":           {about: "The definitions of a saga."},
		"SagaVersion":            {about: "A definition of a saga."},
		"StartSagaRequest.saga":  {about: "`NAME`, which is the newest version, or `NAME@VERSION`", maxLength: flight.MaxKeyPart},
		"StartSagaRequest.id":    {about: "the business identifier, such as the number of the booking", maxLength: flight.MaxKeyPart},
		"StartSagaRequest.input": {about: "the input of the saga, JSON by RFC 7493; its steps refer to it"},
		"StartSagaAnswer.status": {about: "`queued`: the saga is new; `duplicate`: it was started before, perhaps with another version", enum: []string{wire.StatusQueued, wire.StatusDuplicate}},
		"StartSagaAnswer.saga":   {about: "the saga"},
		"Saga.id":                {about: "the id of the saga's flight", pattern: flightIDPattern},
		"definition":             {about: "`NAME@VERSION`"},
		"Saga.state":             {about: "`running`; `committed`: its pivot has succeeded, and from here on it only goes forward; `undoing`; `in_doubt`: a step or an undo waits for a person; `done`; `undone`; `cancelled`: before its first step", enum: wire.SagaStates()},
		"Saga.cause":             {about: "why it is undone, or is to be"},
		"Saga.version":           {about: "the version of the saga's flight; the ETag without its quotes", pattern: versionPattern},
		"Saga.cancel":            {about: "who decided that it is undone: a person, or `saga` for a failure or the deadline"},
		"steps":                  {about: "the steps, in the order of the definition"},
		"SagaVersion.steps":      {about: "the number of steps"},
		"SagaVersion.by":         {about: "who defined it"},
		"SagaVersion.running":    {about: "the number of its sagas that are not over"},
		"step":                   {about: "the name of the step"},
		"SagaStep.action":        {about: "the action whose workers perform the step"},
		"pivot":                  {about: "from the success of this step on the saga is only completed, never undone"},
		"needs":                  {about: "the steps that must be over before this one starts"},
		"SagaStep.flight":        {about: "the flight of the step; absent: the step was not started"},
		"undo":                   {about: "the flight of the undo; absent: it was not started"},
		"Saga.requested_by":      {about: "who has started it"},
		"late":                   {about: "the step has happened after the saga, which is undone, had looked for the last time: undo it with `undo-late`"},
		"late_undo":              {about: "the flight that undoes the late success; absent: nobody has requested it"},
		"UndoLateRequest":        {about: "A request to undo a step that has happened too late."},
		"SagaPage.sagas":         {about: "the sagas of this page"},
		"SagaVersions.versions":  {about: "the definitions, the oldest first"},
		"Job.action":             {about: "the action that the claim named, if it is not that of the key: the job is a step of a saga"},
	}
}
