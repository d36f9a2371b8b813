package httpapi_test

import (
	"net/http"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

func queueOperations() []Operation {
	const why = `{"reason":"the bank is down","actor":"maria"}`
	limit := typedSchema("integer")
	from, to := int64(1), int64(httpapi.MaxPage)
	limit.Minimum, limit.Maximum, limit.Default = &from, &to, httpapi.DefaultPage
	change := codes(bodyCodes, wire.NotFound, wire.KeyRequired, wire.KeyInvalid, wire.PreconditionFailed, wire.QuotaExceeded)
	return []Operation{{
		Pattern: "GET /v1/queues", ID: "listQueues", Tag: tagJobs, Summary: "List the queues: the jobs and the workers of each action, in pages",
		About: "The actions of the namespace that have jobs, workers or a pause; with the namespace `*`, those of all namespaces. The node that leads the ledger counts. " +
			"It knows the workers that have asked since it leads, and measures `ended_per_second` since then.",
		Parameters: []string{wire.HeaderNamespace}, Query: []Parameter{
			{Name: "limit", Schema: limit, About: "the largest number of queues on the page"},
			{Name: "cursor", Schema: typedSchema("string"), About: "continue after an earlier page: its `next`, unchanged"},
		}, Answers: []Answer{{Status: http.StatusOK, About: "a page of the queues", Optional: []string{"Link"}, Content: jsonContent(wire.QueueList{})}}, Problems: codes(readCodes, wire.NotFound, wire.KeyRequired, wire.KeyInvalid),
	}, {
		Pattern: "POST /v1/queues/{action}/pause", ID: "pauseQueue", Tag: tagJobs, Summary: "Pause an action",
		About: "After the answer no job of the action is handed out, until it is resumed; `running` is how many jobs workers have. They go on, and a repeat of a claim that was answered gets its jobs. " +
			"Jobs are submitted and looked at as before. The pause is stored in the ledger. Another pause replaces the reason.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: why,
		Answers: okAnswer("the action is paused", wire.Queue{}), Problems: change,
	}, {
		Pattern: "POST /v1/queues/{action}/resume", ID: "resumeQueue", Tag: tagJobs, Summary: "Resume an action",
		About:      "The workers that wait get jobs at once. To resume an action that is not paused is no error.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: why,
		Answers: okAnswer("the action is not paused", wire.Queue{}), Problems: change,
	}, {
		Pattern: "GET /v1/lanes", ID: "showLane", Tag: tagJobs, Summary: "Show a lane",
		About:      "The first 100 jobs of a lane in their order. Name the lane by `action` and `lane`, or by the `key` of one of its jobs.",
		Parameters: []string{wire.HeaderNamespace},
		Query: []Parameter{
			{Name: "action", Schema: typedSchema("string"), About: "the action of the lane"},
			{Name: "lane", Schema: typedSchema("string"), About: "the name of the lane"},
			{Name: "key", Schema: typedSchema("string"), About: "the full key of a job that stands, or stood, in the lane"},
		},
		Answers: okAnswer("the lane", wire.Lane{}), Problems: codes(readCodes, wire.NotFound, wire.KeyRequired, wire.KeyInvalid),
	}}
}
