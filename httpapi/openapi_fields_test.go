package httpapi_test

import (
	"maps"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// fieldDoc is the documentation of a type or field, and the limits of its values.
type fieldDoc struct {
	about        string
	enum         []string
	pattern      string
	min          int64 // the range of a number; both 0: no limit
	max          int64
	maxLength    int // the longest string, in bytes; 0: no limit
	maxItems     int // the longest array; 0: no limit
	defaultValue any // the value of an absent field; nil: none
}

// applyTo sets the documentation and the limits of a schema.
func (d *fieldDoc) applyTo(s *Schema) {
	s.Description, s.Enum, s.Pattern, s.MaxLength, s.MaxItems, s.Default = d.about, d.enum, d.pattern, d.maxLength, d.maxItems, d.defaultValue
	if d.min != d.max {
		s.Minimum, s.Maximum = &d.min, &d.max
	}
}

// Patterns of values that have one spelling.
const (
	flightIDPattern   = `^fl_[a-z2-7]{26}$`
	indexPattern      = `^[0-9]+-[0-9]+$`
	versionPattern    = `^[0-9]+\.[0-9]+$`
	digestPattern     = `^sha256:[0-9a-f]{64}$`
	openDigestPattern = `^[0-9a-f]{32}$`
)

// maxPolicyMS is the longest duration in a policy.
const maxPolicyMS = int64(wire.MaxDuration / 1e6)

// outcomeNames and stateNames are the names that package flight defines; enumNames lists the names of an enum from one
// value on.
func outcomeNames() (all []string) { return enumNames(flight.OutcomeSucceeded) }
func stateNames() (all []string)   { return enumNames(flight.StateAbsent) }

func enumNames[T interface {
	~uint8
	String() string
}](first T) (all []string) {
	for v := first; v.String() != "invalid"; v++ {
		all = append(all, v.String())
	}
	return all
}

func decisionNames() []string {
	return []string{wire.DecisionProceed, wire.DecisionReplay, wire.DecisionVerify}
}

// allDocs documents each type and each field. The key of a field is its name, or type.name if the name has another
// meaning in that type.
func allDocs() map[string]fieldDoc {
	return mergeMaps(
		typeDocs(),
		requestDocs(),
		policyDocs(),
		jobDocs(),
		approvalDocs(),
		queueDocs(),
		actionDocs(),
		notifyDocs(),
		sagaDocs(),
		restoreDocs(),
		clusterDocs(),
		answerDocs(),
		flightDocs(),
		bodyDocs(),
		problemDocs(),
		eventDocs(),
		batchDocs(),
		importDocs(),
		serverDocs(),
		adminDocs(),
	)
}

// mergeMaps merges the parts of a table.
func mergeMaps[T any](parts ...map[string]T) map[string]T {
	all := map[string]T{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// typeDocs documents the objects.
func typeDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"OpenRequest":         {about: "An open: the effect that you want to perform once, and the recovery policy. The first caller's policy applies for the life of the key."},
		"AbandonRequest":      {about: "The abandon of an open: no effect was started under its nonce, and none will be."},
		"ReportRequest":       {about: "The outcome of an attempt. Send any JSON as `body`, anything else as `body_base64` with its `content_type`. For a long body you may send only the beginning, with `truncated`, and the `size` and `digest` of the whole."},
		"SuspendRequest":      {about: "You have started the effect and leave: the attempt waits for its callback. Send exactly one of `deadline_ms` and `deadline`. A repeat gets the same answer, and the first deadline counts."},
		"CallbackRequest":     {about: "The outcome of the attempt, with a receipt as in a report."},
		"CallbackAnswer":      {about: "The outcome is recorded. A repeat of the same callback gets the same answer."},
		"VerificationRequest": {about: "The result of a look-up at the provider. `session`, `nonce`, `not_after`, `owner`, `ttl_ms` and `wait_ms` are as in an open: if the effect did not happen, the answer may be `proceed`."},
		"SessionRequest":      {about: "A session that you renew and close yourself, for any number of flights."},
		"RenewRequest":        {about: "A renewal of a session, and the open attempts that its owner knows of."},
		"OperatorRequest":     {about: "A decision of a person, with the reason. It is stored in the flight's history."},
		"ResolveRequest":      {about: "A person's resolution of a flight in doubt. With `happened` send the receipt as in a report, at least the `external_id`, or state with `no_receipt` that there is neither. Without a body, later callers are told that the effect happened, and get no result (`truncated`)."},
		"AbandonAnswer":       {about: "The abandon was recorded."},
		"OpenAnswer":          {about: "The decision for the caller. Only `proceed` permits the effect, and only it has the status 201."},
		"Policy":              {about: "The policy that the first caller of a key declared."},
		"Attempt":             {about: "One attempt to perform the effect."},
		"Flight":              {about: "The record of one key."},
		"FlightPage":          {about: "A page of the list of flights, newest first. Receipts have no bodies here."},
		"Attribution":         {about: "The person, reason and time of a decision."},
		"Resolution":          {about: "A person's resolution of a flight in doubt, or decision about its approval. An approval that expired is `rejected` with an empty actor."},
		"Receipt":             {about: "The stored first outcome of a flight. It never changes, and every duplicate gets the same bytes."},
		"Evidence":            {about: "A report that arrived too late. It is stored and shown, but changes nothing."},
		"PreviousGeneration":  {about: "The record of an earlier generation of a key."},
		"Event":               {about: "One event of a flight."},
		"History":             {about: "A page of the events of a flight, oldest first."},
		"SessionAnswer":       {about: "A session, and the attempts that are open under it."},
		"OpenAttempt":         {about: "An attempt that is open under a session."},
		"Ready":               {about: "Whether a node can serve callers."},
		"LedgerInfo":          {about: "What the ledger holds, so that a person notices the wrong one. A server that needs a token says without one only whether the ledger is empty."},
		"Check":               {about: "The state of one part of a node."},
		"Version":             {about: "The version of the server."},
		"Problem":             {about: "An error (RFC 9457). Programs branch on `code`; the other fields are for people."},
		"FieldError":          {about: "One invalid place in a request: exactly one of `pointer`, `header` and `parameter` is set."},
		"DuplicateStats":      {about: "The calls of a key that were answered without another effect. They are counted in memory and logged within a second, so a crash can lose the count of the last second."},
		"Caller":              {about: "A caller, by the name that it gave itself."},
		"EventPage":           {about: "A page of the events of all flights, in the order of the ledger's log."},
		"Gap":                 {about: "A message in a stream, in place of events that the log no longer has."},
		"BatchLine":           {about: "One request of a batch: exactly one of `open`, `report` and `abandon`."},
		"BatchAnswer":         {about: "The answer to one line of a batch. It names the line; the lines are answered in the order of completion."},
		"ImportLine":          {about: "One receipt of an effect that happened before flightd was used."},
		"ImportAnswer":        {about: "The result of an import."},
		"ImportDifference":    {about: "A line whose key was not changed, although the ledger has a different record."},
		"Node":                {about: "The description of a node, with `?verbose`."},
		"Spool":               {about: "Reports on the disk of a node that the ledger has not stored yet."},
		"Etcd":                {about: "The state of the etcd in which a node keeps its leases."},
		"EtcdMember":          {about: "A member of an etcd of the operator's own."},
		"ProblemPage":         {about: "The documentation of a problem code."},
		"TokenRequest":        {about: "A token to create, or with `rotate` a new secret of a token that exists."},
		"NewToken":            {about: "A new token. This is the only answer that has the secret."},
		"Token":               {about: "A token, without its secrets."},
		"TokenList":           {about: "The tokens of the deployment, or of the namespace of your token."},
		"WhoAmI":              {about: "The token of the request."},
		"ReasonRequest":       {about: "A deletion, with the reason. It is stored in the audit log."},
		"NamespaceRequest":    {about: "All limits of a namespace. A limit that you do not send has the value of the namespace `*`, else its default."},
		"Namespace":           {about: "A namespace: the limits in force, and what it uses."},
		"NamespaceList":       {about: "The namespaces that hold flights or have limits of their own, and `*` for all others."},
		"AuditEntry":          {about: "One decision of a person."},
		"AuditPage":           {about: "A page of the audit log, newest entries first."},
		"Restore":             {about: "Whether the ledger is a restored one that opens nothing."},
		"AskedPage":           {about: "A page of the keys that may run when the restore is finished."},
		"Cluster":             {about: "The nodes of a cluster, as the leader sees them."},
		"ClusterNode":         {about: "A node of a cluster."},
		"LeaseEpoch":          {about: "The lease epoch of the ledger."},
		"Revoked":             {about: "A token was revoked."},
		"ReplaceNode":         {about: "The certificate of the node that takes the place of another one, with the reason. It is stored in the audit log."},
		"FinishRestore":       {about: "The end of a restore, with the reason. It is stored in the audit log."},
	}
}

func requestDocs() map[string]fieldDoc {
	const text = 64 << 10
	return map[string]fieldDoc{
		"OpenRequest.action":               {about: "the kind of effect: the name part of the key; letters, digits, `.`, `_` and `-`", pattern: `^[A-Za-z0-9._-]+$`, maxLength: flight.MaxKeyPart},
		"OpenRequest.id":                   {about: "the id part of the key, made of business identifiers; printable ASCII without space and `#`, other bytes percent-encoded", pattern: `^[!"$-~]+$`, maxLength: flight.MaxKeyPart},
		"OpenRequest.input":                {about: "the input of the effect, as JSON of RFC 7493, at most 256 KiB; an open of the same key with another input is rejected"},
		"OpenRequest.fingerprint":          {about: "replaces the input if you do not send it: `sha256:` and 64 hex digits; or `none`, to compare the key only", pattern: `^(none|sha256:[0-9a-fA-F]{64})$`},
		"nonce":                            {about: "random, new for each open: while the attempt is open, a repeat with the same nonce gets the same answer. You cannot repeat or abandon an open without a nonce", maxLength: 255},
		"AbandonRequest.nonce":             {about: "the nonce of the open", maxLength: 255},
		"not_after":                        {about: "the ledger time, in milliseconds since 1970, after which this open cannot open an attempt; at most 60 s ahead of the ledger's time. Set it once per nonce and repeat it with the nonce. It does not affect repeats while the attempt is open. Allowed only with a nonce; without `not_after` the node sets it, and you cannot abandon the nonce", max: wire.MaxLedgerTime},
		"AbandonRequest.not_after":         {about: "the `not_after` of the open; ledger time, in milliseconds since 1970", min: 1, max: wire.MaxLedgerTime},
		"AbandonRequest.action":            {about: "the name part of the key, as in the open", pattern: `^[A-Za-z0-9._-]+$`, maxLength: flight.MaxKeyPart},
		"AbandonRequest.id":                {about: "the id part of the key, as in the open", pattern: `^[!"$-~]+$`, maxLength: flight.MaxKeyPart},
		"AbandonRequest.reason":            {about: "the reason, for people", maxLength: text},
		"session":                          {about: "your session, under which the attempt is opened; without it the node creates a session that ends with the report", maxLength: 512},
		"OpenAnswer.session":               {about: "the session that holds the attempt: renew this one, even if you sent another one"},
		"SessionAnswer.session":            {about: "the id of the session"},
		"owner":                            {about: "the name of the caller, for people: host and process id", maxLength: 1024},
		"Attempt.owner":                    {about: "the caller that opened it"},
		"ttl_ms":                           {about: "the time to live of the session without a renewal, in whole seconds from 2000; 0 means 15000", max: int64(wire.MaxTTL / 1e6)},
		"wait_ms":                          {about: "the longest time to wait for another caller's attempt", max: wire.MaxWaitMS, defaultValue: wire.DefaultWaitMS},
		"ReportRequest.outcome":            {about: "`succeeded`: the effect happened; `refused`: it did not happen and never will; `not_done`: it certainly did not happen in this attempt; `unknown`: it may have happened", enum: outcomeNames()},
		"ReportRequest.error":              {about: "the error, for people", maxLength: text},
		"VerificationRequest.result":       {about: "the result of the look-up", enum: []string{wire.ResultHappened, wire.ResultNotHappened, wire.ResultUnknown}},
		"ResolveRequest.result":            {about: "`happened` stores the receipt; `not_happened` allows a new attempt; `fail` ends the flight without a receipt", enum: []string{wire.ResultHappened, wire.ResultNotHappened, wire.ResultFail}},
		"no_receipt":                       {about: "with `happened`: you have neither a body nor an `external_id`"},
		"VerificationRequest.verification": {about: "the `verification` in the answer `verify`", maxLength: 512},
		"ReportRequest.fencing_token":      {about: "the fencing token in the answer `proceed`", maxLength: 512},
		"callback":                         {about: "true: you want to hand the attempt over to a callback, and the answer `proceed` has the `callback_url`; without `public_url` the server then opens nothing (`callbacks_off`)"},
		"CallbackRequest.outcome":          {about: "as in a report; before the attempt was suspended only `succeeded` is taken", enum: outcomeNames()},
		"CallbackRequest.error":            {about: "the error, for people", maxLength: text},
		"SuspendRequest.fencing_token":     {about: "the fencing token in the answer `proceed`", maxLength: 512},
		"SuspendRequest.key":               {about: "the full key, as in a report", maxLength: 1024},
		"deadline_ms":                      {about: "how long the attempt waits for its callback, in milliseconds from the arrival of this request", max: maxPolicyMS},
		"deadline":                         {about: "until when the attempt waits for its callback; ledger time, in milliseconds since 1970", max: wire.MaxLedgerTime},
		"ReportRequest.key":                {about: "the full key, as in the answer to the open; with it every node can accept the report", maxLength: 1024},
		"RenewRequest.open_digest":         {about: "the digest of the attempts that you believe to be open under the session: the first 16 bytes, in hex, of the SHA-256 of one line `<nonce> <attempt>` with a line feed for each attempt, sorted as text, where `<nonce>` is as in `OpenAttempt`. If it is right or absent, the answer lists no attempts", pattern: openDigestPattern},
		"after":                            {about: "list only attempts of flights after this id: the last `flight_id` of an answer with `more`", pattern: flightIDPattern},
		"OperatorRequest.key":              {about: "the full key; required to free a tombstone, which does not store its key", maxLength: 1024},
		"reason":                           {about: "the reason, stored in the history", maxLength: text},
		"actor":                            {about: "the person who decides; like the header Flightd-Actor", maxLength: 1024},
	}
}

func restoreDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"Restore.reconciling":    {about: "the restore is not finished: an open without a final answer is answered `reconciling`"},
		"Restore.store_epoch":    {about: "rises with every restore; fencing tokens of an earlier one make no attempt valid"},
		"Restore.hold_until":     {about: "before this time the restore is finished only with `force`"},
		"Restore.hold_ms":        {about: "how long the hold still lasts"},
		"Restore.asked":          {about: "the number of keys that callers have asked for since the restore"},
		"AskedPage.keys":         {about: "full keys without a receipt or a doubt: flights of the ledger, newest first, and steps and undos of its sagas, then the other keys that callers have asked for, sorted; a page may be empty although there is a next one"},
		"AskedPage.next":         {about: "the `after` of the next page; absent on the last page"},
		"NewToken.not_yet":       {about: "after a rotation: the nodes of the cluster that did not answer; they may answer stored receipts and events to the old secret for at most 60 s"},
		"Revoked.not_yet":        {about: "the nodes of the cluster that did not answer, and so may not know it yet"},
		"LeaseEpoch.lease_epoch": {about: "sessions of an older epoch open nothing"},
		"LeaseEpoch.hold_until":  {about: "before this time, attempts of older epochs are not ended"},
		"LeaseEpoch.hold_ms":     {about: "how long the hold still lasts"},
		"FinishRestore.force":    {about: "also before the hold is over: every caller of the ledger that was lost is dead"},
	}
}

func clusterDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"Cluster.leader":                  {about: "the name of the node that leads the ledger; absent: none is known"},
		"Cluster.cluster_id":              {about: "the id of the cluster; absent: a lone node"},
		"Cluster.nodes":                   {about: "all nodes of the cluster"},
		"ClusterNode.role":                {about: "`unreachable` if the node did not answer the newest request"},
		"ClusterNode.instance":            {about: "the id of the node's data directory"},
		"ClusterNode.address":             {about: "host and port of the node's port for other nodes"},
		"ClusterNode.etcd_address":        {about: "host and port of its etcd member's peer port"},
		"ClusterNode.applied":             {about: "the index of the last entry of the ledger that the node has applied"},
		"ClusterNode.behind":              {about: "how many entries the node is behind the leader"},
		"ClusterNode.clock_ms":            {about: "how far the node's wall clock is ahead of that of the node that answers"},
		"ClusterNode.etcd_ok":             {about: "etcd answers the node"},
		"ClusterNode.seen_before_ms":      {about: "the age of this description"},
		"backed_up_at":                    {about: "when the last whole backup ended that the node has sent; absent: none since its start"},
		"ClusterNode.reads_feature_level": {about: "the highest feature level that the node's build reads"},
		"ClusterNode.problem":             {about: "why the node is unreachable or no voter, or that its disk is damaged"},
		"disk_damaged":                    {about: "a block on the node's disk was found damaged since its start: replace the node while the others are whole"},
		"ReplaceNode.certificate":         {about: "SHA-256 of the new node's certificate, in hex", pattern: `^[0-9A-Fa-f]{64}$`},
		"ReplaceNode.while_running":       {about: "also if the node runs; it is cut off at once"},
	}
}

func policyDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"attempt_timeout_ms": {about: "the time limit of an attempt; 0: no limit", max: maxPolicyMS},
		"settle_ms":          {about: "the time after a lost attempt during which its effect may still appear at the provider; no look-up happens before; 0: the attempt's timeout and 15 s", max: maxPolicyMS},
		"provider_window_ms": {about: "how long the provider remembers the idempotency key; 0: forever. `resend` does not start an attempt that might not end within 19/20 of it", max: maxPolicyMS},
		"recovery":           {about: "the recovery after an attempt of unknown outcome: `hold` waits for a person, `resend` sends again with the same idempotency key, `verify` looks up the effect at the provider first", enum: enumNames(flight.RecoveryHold)},
		"lookup":             {about: "true: the effect can be looked up at the provider, whatever the recovery. If an earlier attempt may have acted and the flight is cancelled, its retries are exhausted or the provider's window is over, a caller then looks the effect up before a person must decide"},
		"verify_attempts":    {about: "the number of look-ups with unknown result after which a person must decide; 0: the default", max: 1000},
		"retention":          {about: "how long the receipt is kept after the flight has ended: `30d`, `12h`, `1d12h`", pattern: `^([0-9]+d)?([0-9]+(\.[0-9]+)?(h|m|s|ms))*$`},
	}
}

func answerDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"OpenAnswer.decision":            {about: "`proceed`: perform the effect, with this token and this idempotency key; `replay`: the effect has happened already, `flight` has the receipt; `verify`: look up the effect at the provider, then post the verification", enum: decisionNames()},
		"Problem.decision":               {about: "set if the flight in the body is the answer to an open", enum: []string{wire.DecisionReplay}},
		"flight_id":                      {about: "the id of the flight: `fl_` and a hash of the full key", pattern: flightIDPattern},
		"key":                            {about: "the full key: namespace, action and id"},
		"Flight.key":                     {about: "the full key: namespace, action and id; absent for a tombstone, which does not store it"},
		"generation":                     {about: "the generation of the key; a retry or a free starts the next one"},
		"OpenAnswer.nonce":               {about: "the nonce of the open; ignore an answer with another nonce than yours", maxLength: 255},
		"AbandonAnswer.nonce":            {about: "the nonce of the abandon; ignore an answer with another nonce than yours", maxLength: 255},
		"SessionRequest.nonce":           {about: "random: the answer names it, so that you can tell it from the answer to another request", maxLength: 255},
		"SessionAnswer.nonce":            {about: "the nonce of the request that created the session; ignore an answer with another nonce than yours", maxLength: 255},
		"Problem.session":                {about: "the session of the renewal or the close that is answered; ignore a problem of another session"},
		"Problem.nonce":                  {about: "the nonce of the open, the verification or the abandon that is answered; ignore an answer with another nonce than yours. Absent if the body was not read", maxLength: 255},
		"OpenAnswer.attempt":             {about: "the number of the attempt; it increases with every attempt of the key"},
		"OpenAnswer.fencing_token":       {about: "identifies the attempt; send it with the effect and with the report. The tokens of a key sort by age, as text"},
		"OpenAnswer.idempotency_key":     {about: "the idempotency key for the provider, the same for every attempt of this flight", maxLength: 64},
		"OpenAnswer.traceparent":         {about: "with `proceed`, while the node exports spans and the trace is sampled: the W3C traceparent of the attempt's span; send it to the provider"},
		"OpenAnswer.verification":        {about: "permits you to post a verification"},
		"OpenAnswer.input":               {about: "the input as first submitted, byte for byte: send this one, not your own"},
		"input_base64":                   {about: "the input as first submitted, if it is not JSON"},
		"input_content_type":             {about: "the content type of `input_base64`"},
		"trust_ms":                       {about: "how long you may start effects under the session, counted from the moment when you sent the request"},
		"resend_ms":                      {about: "with `proceed`, if an earlier attempt may have acted: how long you may start the effect, counted from the moment when you sent the request. After it, report `not_done`, because the provider may have forgotten the idempotency key. Absent: no limit", max: 2 * maxPolicyMS},
		"renew_every_ms":                 {about: "the interval at which to renew the session"},
		"policy_differs":                 {about: "the policy of the key's first caller differs from yours, and it applies"},
		"policy":                         {about: "the policy that applies, if it differs from yours"},
		"previous":                       {about: "the attempt before this one"},
		"OpenAnswer.flight":              {about: "with `replay`: the flight and its receipt"},
		"Flight.duplicates":              {about: "in a list, for a flight in doubt: the calls of its key that were answered without another effect; up to a second old"},
		"Problem.flight":                 {about: "with `flight_failed`: the flight and its receipt, if it has one"},
		"SessionAnswer.cancel_requested": {about: "the ids of this session's flights whose cancellation was requested"},
		"open_digest":                    {about: "the digest of all attempts that are open under the session, computed as in RenewRequest", pattern: openDigestPattern},
		"open":                           {about: "the attempts that are open under the session, sorted by flight id, at most 256; absent if the digest that you sent is right, or if you sent none", maxItems: 256},
		"more":                           {about: "the list is longer: renew again with the last `flight_id` as `after`"},
		"OpenAttempt.nonce":              {about: "the nonce as the ledger stores it: the first 16 bytes, in hex, of the SHA-256 of the nonce in the open", pattern: openDigestPattern},
		"fencing_token":                  {about: "the fencing token of the attempt: report with it"},
	}
}

func flightDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"Flight.id":                {about: "`fl_` and a hash of the full key: the same in every deployment, forever", pattern: flightIDPattern},
		"state":                    {about: "the state of the flight", enum: stateNames()},
		"PreviousGeneration.state": {about: "the state in which the generation ended", enum: stateNames()},
		"source":                   {about: "the origin of this answer: `executed` by this call, `joined` a running attempt, or `replayed` from the ledger", enum: []string{"executed", "joined", "replayed"}},
		"version":                  {about: "the version of the flight; the ETag without its quotes", pattern: versionPattern},
		"attempts":                 {about: "the number of attempts; absent if there was none, and for a tombstone"},
		"Flight.action":            {about: "the action whose workers claim the job, where it is not that of the key: a step of a saga"},
		"Flight.recovery":          {about: "the recovery after an attempt of unknown outcome", enum: enumNames(flight.RecoveryHold)},
		"Flight.fingerprint":       {about: "the fingerprint of the input: `sha256:` and 64 hex digits, or `none`"},
		"cause":                    {about: "the reason why the flight is in doubt, failed or cancelled"},
		"tainted":                  {about: "the outcome of an earlier attempt is still unknown"},
		"verifying":                {about: "a look-up at the provider is due"},
		"overlap":                  {about: "there is evidence of a second effect"},
		"created_at":               {about: "when the key was first used"},
		"not_before":               {about: "the earliest time of the next attempt"},
		"held_until":               {about: "no other caller may act before this time: etcd lost the session of the open attempt, and a person accepted the loss"},
		"callback_until":           {about: "the attempt waits for its callback until then: its caller has started the effect and left"},
		"callback_url":             {about: "if the open asked with `callback`: where the provider reports the outcome of this attempt. It is a secret, and the right to report. Under `resend` all attempts have the same"},
		"finished_at":              {about: "when the flight ended"},
		"expires_at":               {about: "when the retention of the receipt ends"},
		"cancel_requested":         {about: "the request to cancel the flight; the running attempt decides"},
		"resolution":               {about: "the resolution of the last doubt by a person"},
		"last_attempt":             {about: "the newest attempt"},
		"receipt":                  {about: "the stored outcome"},
		"evidence":                 {about: "reports that arrived too late, at most 16 in full"},
		"evidence_more":            {about: "the number of further late reports"},
		"previous_generations":     {about: "earlier generations of the key"},
		"actor":                    {about: "the person or program"},
		"reason":                   {about: "the reason given"},
		"at":                       {about: "when"},
		"Resolution.result":        {about: "the resolution", enum: []string{wire.ResultHappened, wire.ResultNotHappened, wire.ResultFail, flight.FindingApproved.String(), flight.FindingRejected.String()}},
		"attempt":                  {about: "the number of the attempt"},
		"outcome":                  {about: "the outcome of the attempt", enum: outcomeNames()},
		"Attempt.outcome":          {about: "the outcome; absent while the attempt is open", enum: outcomeNames()},
		"Receipt.attempt":          {about: "the number of the attempt; absent if there was none, and for a tombstone"},
		"Receipt.outcome":          {about: "`succeeded` or `refused`", enum: []string{flight.OutcomeSucceeded.String(), flight.OutcomeRefused.String()}},
		"error":                    {about: "the error, for people"},
		"lost":                     {about: "the attempt was declared lost; it was not reported"},
		"opened_at":                {about: "when the attempt was opened"},
		"closed_at":                {about: "when the attempt ended"},
		"from":                     {about: "the origin of the receipt: the attempt's `report`, a `lookup` at the provider, a `person`, an `import`, or the late report of an attempt that a restore had lost (`report_after_restore`); absent for a tombstone", enum: enumNames(flight.SourceReport)},
		"FlightPage.flights":       {about: "the flights of this page"},
		"next":                     {about: "the cursor of the next page; absent on the last page"},
		"History.events":           {about: "the events, oldest first"},
		"History.next":             {about: "the position to continue after; absent on the last page", pattern: versionPattern},
		"Event.id":                 {about: "the version of the flight that the event produced", pattern: versionPattern},
		"kind":                     {about: "the kind of event", enum: enumNames(flight.EventSubmitted)},
		"Event.attempt":            {about: "the number of the attempt; absent if the event is not about an attempt"},
		"note":                     {about: "an error, a reason, or an external id"},
	}
}

func bodyDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"external_id":       {about: "the id that the provider gave to the effect; never truncated"},
		"Body.external_id":  {about: "the id that the provider gave to the effect; never truncated", maxLength: flight.MaxText},
		"body":              {about: "the body, if it is JSON"},
		"body_base64":       {about: "the body, if it is not JSON or was truncated"},
		"content_type":      {about: "the content type of the body", maxLength: 255},
		"truncated":         {about: "the body was truncated; `size` and `digest` are those of the whole body"},
		"Receipt.truncated": {about: "the result cannot be replayed whole: the body was truncated, or erased (`size` and `digest` are those of the whole body), or a person resolved the doubt without a body (`size` is absent)"},
		"Body.size":         {about: "the full length in bytes of a truncated body", max: 1<<31 - 1},
		"size":              {about: "the full length in bytes; absent if there is no body, and for a tombstone"},
		"Body.digest":       {about: "the digest of the whole of a truncated body", pattern: `^sha256:[0-9a-fA-F]{64}$`},
		"digest":            {about: "the digest of the whole body", pattern: digestPattern},
	}
}

func problemDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"type":                {about: "the path of the code's page on this server"},
		"title":               {about: "a short description of the code"},
		"status":              {about: "the HTTP status", min: 400, max: 599},
		"detail":              {about: "the details of this error"},
		"code":                {about: "the stable name of the error; later versions may add codes"},
		"retryable":           {about: "the same request, sent again later, may get another answer without anyone acting first"},
		"hint":                {about: "the next step"},
		"Problem.state":       {about: "the state of the flight", enum: stateNames()},
		"Problem.outcome":     {about: "if the retention has ended: the outcome of the flight", enum: stateNames()},
		"Problem.digest":      {about: "if the retention has ended: the digest of the receipt", pattern: digestPattern},
		"proposed":            {about: "with `idempotency_in_flight` and `in_doubt`: whether the open was proposed to the ledger. If false, the answer is this node's own view, and this node will not propose the open"},
		"Problem.ledger_time": {about: "with `open_expired`: the ledger's time, in milliseconds since 1970"},
		"retry_after_ms":      {about: "when to repeat the request; like the header Retry-After, which is in seconds"},
		"errors":              {about: "the invalid places of the request"},
		"request_id":          {about: "the id of this request in the server's log"},
		"pointer":             {about: "a JSON pointer into the body; empty: the whole body"},
		"header":              {about: "the name of a header"},
		"parameter":           {about: "the name of a query parameter"},
		"FieldError.detail":   {about: "the error at this place"},
		"about":               {about: "when the code is returned, and the state of the flight then"},
		"example":             {about: "an example of an answer with this code"},
	}
}

func eventDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"Event.count":          {about: "with `duplicates`: the number of calls"},
		"Event.flight_id":      {about: "the id of the flight; absent in the events of one flight", pattern: flightIDPattern},
		"Event.key":            {about: "the full key; absent in the events of one flight"},
		"Event.document":       {about: "the document that the event is about: namespace/kind/name. Only a token with the verb `admin` gets such events"},
		"DuplicateStats.count": {about: "the number of calls"},
		"first_at":             {about: "the time of the first call"},
		"last_at":              {about: "the time of the last call"},
		"callers":              {about: "the last eight callers, newest last", maxItems: 8},
		"History.duplicates":   {about: "the calls that were answered without another effect; up to a second old, absent if there were none"},
		"EventPage.events":     {about: "the events, in the order of the log"},
		"EventPage.next":       {about: "the position to continue after, also if the page is empty", pattern: versionPattern},
		"Gap.after":            {about: "the events after this position are missing", pattern: versionPattern},
		"until":                {about: "the last position of the gap", pattern: versionPattern},
		"redacted":             {about: "the redaction of the input and the receipt"},
		"trace_id":             {about: "the trace that the request belongs to"},
	}
}

func batchDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"open":                    {about: "the body of an open. Its `wait_ms` counts as 0"},
		"report":                  {about: "the body of a report"},
		"abandon":                 {about: "the body of an abandon"},
		"BatchLine.flight_id":     {about: "with `report`: the id in the path of a report"},
		"BatchLine.namespace":     {about: "the namespace of this line; absent: the header's"},
		"traceparent":             {about: "the `Traceparent` of this line; absent: the header's"},
		"BatchAnswer.status":      {about: "the status that the route of the line would have answered with", min: 200, max: 599},
		"index":                   {about: "the header `Flightd-Index` of that answer"},
		"BatchAnswer.body":        {about: "the body of that answer: what the route documents, or a problem"},
		"BatchAnswer.body_base64": {about: "the body instead, if it contains a line break"},
	}
}

func importDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"ImportLine.key":          {about: "the full key: namespace, action and id"},
		"ImportLine.outcome":      {about: "`succeeded` or `refused`", enum: []string{flight.OutcomeSucceeded.String(), flight.OutcomeRefused.String()}},
		"ImportLine.input":        {about: "the input, if it is known"},
		"ImportLine.fingerprint":  {about: "`sha256:` and 64 hex digits, or `none`; absent: the fingerprint of the input, or none if there is no input"},
		"ImportLine.created_at":   {about: "when the key was first used"},
		"ImportLine.finished_at":  {about: "when the flight ended; the retention starts here; absent: now"},
		"lines":                   {about: "the number of lines"},
		"imported":                {about: "the number of new receipts; in a dry run, of receipts that would be new"},
		"existing":                {about: "the number of keys that were not changed, because the ledger has the same receipt or a tombstone"},
		"dry_run":                 {about: "nothing was changed"},
		"differing":               {about: "the keys that were not changed, although the ledger has a different record; check them"},
		"line":                    {about: "the line number; the first line is 1"},
		"ImportDifference.state":  {about: "the state of the flight", enum: stateNames()},
		"ImportDifference.detail": {about: "the difference"},
	}
}

func serverDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"Version.version":        {about: "the version of the program"},
		"Version.ledger_time":    {about: "the ledger's time, in milliseconds since 1970"},
		"feature_level":          {about: "the feature level of the ledger, which says what its log may hold"},
		"api":                    {about: "the version of the API"},
		"go":                     {about: "the version of Go that built the program"},
		"deployment":             {about: "the id of this deployment; idempotency keys depend on it"},
		"ready":                  {about: "whether all parts are ready"},
		"checks":                 {about: "the state of each part; with `?verbose`, or if one is not ready"},
		"name":                   {about: "the name of the part"},
		"ok":                     {about: "whether the part is ready"},
		"Check.error":            {about: "the reason why the part is not ready"},
		"time":                   {about: "the time of the node's clock"},
		"ledger_time":            {about: "the time that the ledger would give to a new entry"},
		"data":                   {about: "the node's data directory"},
		"disk_free":              {about: "the free bytes of the ledger's disk; absent: unknown"},
		"ledger_bytes":           {about: "the bytes of the ledger and its log on that disk"},
		"certificate_expires_at": {about: "when the certificate of the API expires; absent without TLS"},
		"spool":                  {about: "reports on the node's disk that the ledger has not stored yet; absent if the disk cannot be read"},
		"waiting":                {about: "reports that the node proposes until the ledger stores them"},
		"quarantined":            {about: "quarantined reports, which the node cannot read; a person must check them"},
		"etcd":                   {about: "the etcd in which the node keeps its leases; absent if etcd does not answer"},
		"Ready.ledger":           {about: "what the ledger of the node holds"},
		"LedgerInfo.empty":       {about: "no key was ever used"},
		"LedgerInfo.flights":     {about: "the stored flights of all namespaces, tombstones among them"},
		"LedgerInfo.in_doubt":    {about: "the flights in doubt"},
		"LedgerInfo.newest":      {about: "the time at which the newest flight was created; absent if all are tombstones"},
		"Ready.node":             {about: "the node that answers; with `?verbose`"},
		"Etcd.version":           {about: "the version of etcd"},
		"endpoints":              {about: "the members of an etcd of the operator's own; absent if the node embeds one"},
		"url":                    {about: "the address of the member, as the node is configured with it"},
		"EtcdMember.version":     {about: "the version of the member; absent if it does not answer"},
		"EtcdMember.error":       {about: "the reason why the member does not answer"},
		"problem":                {about: "the reason why this version must not be used"},
		"revision":               {about: "the newest revision"},
		"compacted":              {about: "the revision below which etcd has deleted history; 0: none"},
		"Etcd.size":              {about: "the size of etcd's database file in bytes"},
		"in_use":                 {about: "the bytes of the file that are in use"},
		"quota":                  {about: "the size at which etcd rejects writes, in bytes; 0: unknown"},
	}
}
