package openapi

import (
	"maps"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// words is what the document says of a field, and how far its values go.
type words struct {
	about   string
	enum    []string
	pattern string
	from    int64 // of numbers; both 0: not bounded
	to      int64
	length  int // of strings, in bytes, at most; 0: not bounded
	items   int // of arrays, at most; 0: not bounded
	usual   any // what stands for a field that is not there; nil: nothing does
}

// limit writes the words into a schema.
func (w *words) limit(s *Schema) {
	s.Description, s.Enum, s.Pattern, s.MaxLength, s.MaxItems, s.Default = w.about, w.enum, w.pattern, w.length, w.items, w.usual
	if w.from != w.to {
		s.Minimum, s.Maximum = &w.from, &w.to
	}
}

// The patterns of what has one spelling.
const (
	flightIDPattern   = `^fl_[a-z2-7]{26}$`
	versionPattern    = `^[0-9]+\.[0-9]+$`
	digestPattern     = `^sha256:[0-9a-f]{64}$`
	openDigestPattern = `^[0-9a-f]{32}$`
)

// yearMS is the longest that a policy's durations may be.
const yearMS = int64(wire.MaxDuration / 1e6)

// outcomes and states are the words of package flight; namesOf gives those from one on.
func outcomes() (all []string) { return namesOf(flight.Succeeded) }
func states() (all []string)   { return namesOf(flight.Absent) }

func namesOf[T interface {
	~uint8
	String() string
}](first T) (all []string) {
	for v := first; v.String() != "invalid"; v++ {
		all = append(all, v.String())
	}
	return all
}

func decisions() []string {
	return []string{wire.DecisionProceed, wire.DecisionReplay, wire.DecisionVerify}
}

// allWords says what each type and each field means: a field by its name, or by its type and name where the name means
// something else there.
func allWords() map[string]words {
	return joined(
		typeWords(),
		requestWords(),
		policyWords(),
		answerWords(),
		flightWords(),
		bodyWords(),
		problemWords(),
		eventWords(),
		importWords(),
		smallWords(),
	)
}

// joined puts the parts of a table together.
func joined[T any](parts ...map[string]T) map[string]T {
	all := map[string]T{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// typeWords says what each object is.
func typeWords() map[string]words {
	return map[string]words{
		"OpenRequest":     {about: "What a caller wants to do once, and how doubt about it is to be settled. The first caller's policy stands for the life of the key."},
		"AbandonRequest":  {about: "An open that its caller gives up: nothing was sent under its nonce, and nothing ever will be."},
		"ReportRequest":   {about: "How an attempt ended. `body` may be any JSON; anything else is `body_base64` with its `content_type`. Of a long body the beginning is enough: `truncated`, with `size` and `digest` of all of it."},
		"VerdictRequest":  {about: "What the provider said when it was asked. `session`, `nonce`, `not_after`, `owner`, `ttl_ms` and `wait_ms` are those of an open: when the effect did not happen, the answer may be `proceed`."},
		"SessionRequest":  {about: "A session that its caller keeps, renews and closes, for any number of flights."},
		"RenewRequest":    {about: "A renewal of a session, and what its owner knows of it."},
		"OperatorRequest": {about: "What a person decided, and why. It stands in the history of the flight."},
		"ResolveRequest":  {about: "How a person settles a doubt. With `happened` comes the receipt, if there is one."},
		"OpenAnswer":      {about: "What the caller is to do. Only `proceed` means act, and only it is answered with 201."},
		"Policy":          {about: "What the first caller of a key declared."},
		"Attempt":         {about: "One try at the effect."},
		"Flight":          {about: "The record of one key."},
		"FlightPage":      {about: "A part of the list of flights, newest first. Receipts come without their bodies."},
		"Mark":            {about: "Who asked for something, why and when."},
		"Settled":         {about: "What a person decided about a doubt."},
		"Receipt":         {about: "The stored first outcome of a flight. It never changes, and every duplicate gets the same bytes."},
		"Evidence":        {about: "A report that came too late. It is kept and shown, and overwrites nothing."},
		"Past":            {about: "What stays of an earlier generation of a key."},
		"Event":           {about: "One line in the history of a flight."},
		"History":         {about: "The history of a flight, oldest first."},
		"SessionAnswer":   {about: "A session that is alive, and the attempts that are open under it."},
		"OpenAttempt":     {about: "An attempt that is open under a session."},
		"Ready":           {about: "Whether a node can do its share."},
		"Check":           {about: "One part of a node."},
		"Version":         {about: "What answers here."},
		"Problem":         {about: "An error, as of RFC 9457. Programs branch on `code`; the rest is for people."},
		"FieldError":      {about: "One place in a request and what is wrong with it. One of `pointer`, `header` and `parameter` is there."},
		"Duplicates":      {about: "The calls of a key that were answered without another effect. They are counted in memory and written within a second: a crash may lose those of the last one."},
		"Caller":          {about: "Who called, as it said itself."},
		"EventPage":       {about: "A part of what happened to all flights, in the order of the ledger's log."},
		"Gap":             {about: "What a stream says in place of events that it can no longer give."},
		"ImportLine":      {about: "One receipt of an effect that happened before flightd was asked."},
		"ImportAnswer":    {about: "What became of the lines of an import."},
		"ImportTrouble":   {about: "A line whose key was left alone although the ledger says something else."},
		"Node":            {about: "What a node knows of itself; with `?verbose`."},
		"Spool":           {about: "Reports on the disk of a node that its ledger has not taken."},
		"Etcd":            {about: "The state of the etcd that a node claims in."},
		"ProblemPage":     {about: "What is to be known about a code."},
	}
}

func requestWords() map[string]words {
	const text = 64 << 10
	return map[string]words{
		"OpenRequest.action":          {about: "what kind of effect it is: the name part of the key; letters, digits, `.`, `_` and `-`", pattern: `^[A-Za-z0-9._-]+$`, length: flight.MaxKeyPart},
		"OpenRequest.id":              {about: "which one: the id part of the key, made of business identifiers; printable ASCII without space and `#`, other bytes percent-encoded", pattern: `^[!"$-~]+$`, length: flight.MaxKeyPart},
		"OpenRequest.input":           {about: "what the effect acts on, as JSON of RFC 7493, at most 256 KiB; the same key with another input is refused"},
		"OpenRequest.fingerprint":     {about: "stands for the input where it is not sent: `sha256:` and 64 hex digits; or `none`: the key alone decides", pattern: `^(none|sha256:[0-9a-fA-F]{64})$`},
		"nonce":                       {about: "drawn at random, one for each open: a repeat with the same nonce gets the same answer while the attempt is open. An open without a nonce cannot be repeated or abandoned", length: 255},
		"AbandonRequest.nonce":        {about: "of the open", length: 255},
		"not_after":                   {about: "ledger time, in milliseconds since 1970, after which this open opens nothing; at most 60 s ahead of the ledger's time, set once per nonce and repeated with it. It does not affect repeats while the attempt is open. Only with a nonce; without `not_after` the node sets it, and the nonce cannot be abandoned", to: wire.MaxLedgerTime},
		"AbandonRequest.not_after":    {about: "of the open; ledger time, in milliseconds since 1970", from: 1, to: wire.MaxLedgerTime},
		"AbandonRequest.action":       {about: "the name part of the key, as in the open", pattern: `^[A-Za-z0-9._-]+$`, length: flight.MaxKeyPart},
		"AbandonRequest.id":           {about: "the id part of the key, as in the open", pattern: `^[!"$-~]+$`, length: flight.MaxKeyPart},
		"AbandonRequest.reason":       {about: "why, for people", length: text},
		"session":                     {about: "the caller's session, under which the attempt is opened; without one the node makes a session that ends with the report", length: 512},
		"OpenAnswer.session":          {about: "the session that holds the attempt: renew this one, also where you sent another one"},
		"SessionAnswer.session":       {about: "the id of the session"},
		"owner":                       {about: "who the caller is, for people: host and process id", length: 1024},
		"Attempt.owner":               {about: "who made it"},
		"ttl_ms":                      {about: "how long the session lives without a renewal, in whole seconds from 2000; 0 stands for 15000", to: int64(wire.MaxTTL / 1e6)},
		"wait_ms":                     {about: "how long to wait for somebody else's attempt", to: wire.MaxWaitMS, usual: wire.DefaultWaitMS},
		"ReportRequest.outcome":       {about: "`succeeded`: it happened; `refused`: it did not and never will; `not_done`: it surely did not happen this time; `unknown`: it may have happened", enum: outcomes()},
		"ReportRequest.error":         {about: "what went wrong, for people", length: text},
		"VerdictRequest.result":       {about: "what the look-up found", enum: []string{wire.ResultHappened, wire.ResultNotHappened, wire.ResultUnknown}},
		"ResolveRequest.result":       {about: "`not_happened` lets a new attempt open; `fail` ends the flight without a receipt", enum: []string{wire.ResultHappened, wire.ResultNotHappened, wire.ResultFail}},
		"VerdictRequest.probe":        {about: "the probe that the answer `verify` gave", length: 512},
		"ReportRequest.fencing_token": {about: "the token that the answer `proceed` gave", length: 512},
		"ReportRequest.key":           {about: "the full key, as the answer to the open names it: with it any node can take the report", length: 1024},
		"RenewRequest.open_digest":    {about: "the digest of the attempts that you believe to be open under the session: the first 16 bytes, in hex, of the SHA-256 of one line `<nonce> <attempt>` with a line feed for each attempt, sorted as text, where `<nonce>` is as in `OpenAttempt`. If it is right, or not there, the answer lists nothing", pattern: openDigestPattern},
		"after":                       {about: "list only attempts of flights behind this one: the last `flight_id` of an answer with `more`", pattern: flightIDPattern},
		"OperatorRequest.key":         {about: "the full key; needed to free a tombstone, which does not know its own", length: 1024},
		"reason":                      {about: "why; it stands in the history", length: text},
		"as":                          {about: "who decides; the header Flightd-As says the same", length: 1024},
	}
}

func policyWords() map[string]words {
	return map[string]words{
		"attempt_timeout_ms": {about: "how long an attempt may take; 0: it is not bounded", to: yearMS},
		"settle_ms":          {about: "how long after an attempt was lost its effect may still show; no look-up happens before; 0: the attempt's time-out and 15 s", to: yearMS},
		"provider_window_ms": {about: "how long the provider remembers our idempotency key; 0: for ever. `resend` starts nothing that might not end within 19/20 of it", to: yearMS},
		"recovery":           {about: "what is done about an attempt of unknown outcome: `hold` waits for a person, `resend` tries again with the same idempotency key, `verify` asks the provider first", enum: namesOf(flight.Hold)},
		"lookup":             {about: "the provider can be asked, whatever the recovery"},
		"look_tries":         {about: "how many look-ups of unknown result are enough to give up; 0: the usual number", to: 1000},
		"retention":          {about: "how long the receipt is kept once the flight has ended: `30d`, `12h`, `1d12h`", pattern: `^([0-9]+d)?([0-9]+(\.[0-9]+)?(h|m|s|ms))*$`},
	}
}

func answerWords() map[string]words {
	return map[string]words{
		"OpenAnswer.decision":            {about: "`proceed`: act, with this token and this idempotency key; `replay`: it happened already, `flight` has the receipt; `verify`: ask the provider, then bring the verdict", enum: decisions()},
		"Problem.decision":               {about: "where the flight in the body is the answer to an open", enum: []string{wire.DecisionReplay}},
		"flight_id":                      {about: "the id of the flight: `fl_` and a hash of the full key", pattern: flightIDPattern},
		"key":                            {about: "the full key: namespace, action and id"},
		"Flight.key":                     {about: "the full key: namespace, action and id; a tombstone does not know it"},
		"generation":                     {about: "which life of the key it is; a retry or a free starts the next"},
		"OpenAnswer.nonce":               {about: "the nonce of the open that this answers: ignore an answer with another nonce than yours", length: 255},
		"OpenAnswer.attempt":             {about: "the number of the attempt; it rises with every attempt of the key"},
		"OpenAnswer.fencing_token":       {about: "identifies the attempt; send it on with the effect, and report with it. Tokens of a key sort by age, as text"},
		"OpenAnswer.idempotency_key":     {about: "the key for the provider: the same for every attempt of this flight", length: 64},
		"OpenAnswer.probe":               {about: "the right to bring a verdict"},
		"OpenAnswer.input":               {about: "the input as first submitted, byte for byte: send this, not your own"},
		"input_base64":                   {about: "the input as first submitted, where it is not JSON"},
		"input_content_type":             {about: "of `input_base64`"},
		"trust_ms":                       {about: "how long effects may be started under the session, counted from when the request was sent"},
		"resend_ms":                      {about: "with `proceed`, where an earlier attempt may have acted: for how long the effect may be started, counted from when the request was sent. After it, report `not_done`: the provider may have forgotten the idempotency key. Not there: no bound", to: 2 * yearMS},
		"renew_every_ms":                 {about: "how often to renew the session"},
		"policy_differs":                 {about: "another policy, that of the first caller, stands"},
		"policy":                         {about: "the policy that stands, where it differs"},
		"previous":                       {about: "the attempt before this one"},
		"OpenAnswer.flight":              {about: "with `replay`: the flight and its receipt"},
		"Problem.flight":                 {about: "with `flight_failed`: the flight and its receipt, where it has one"},
		"SessionAnswer.cancel_requested": {about: "ids of flights of this session whose cancellation was requested"},
		"open_digest":                    {about: "the digest of all attempts that are open under the session, computed as in RenewRequest", pattern: openDigestPattern},
		"open":                           {about: "the attempts that are open under the session, in the order of their flights' ids, at most 256; not there where the digest that was sent is right, or none was sent", items: 256},
		"more":                           {about: "the list goes on: renew again with the last `flight_id` as `after`"},
		"OpenAttempt.nonce":              {about: "the nonce as the ledger keeps it: the first 16 bytes, in hex, of the SHA-256 of the nonce that the open carried", pattern: openDigestPattern},
		"fencing_token":                  {about: "the fencing token of the attempt: report with it"},
	}
}

func flightWords() map[string]words {
	return map[string]words{
		"Flight.id":          {about: "`fl_` and a hash of the full key: the same everywhere and for ever", pattern: flightIDPattern},
		"state":              {about: "where the flight stands", enum: states()},
		"Past.state":         {about: "how that generation ended", enum: states()},
		"source":             {about: "where this answer comes from: `executed` now, `joined` an attempt that was running, or `replayed` from the ledger", enum: []string{"executed", "joined", "replayed"}},
		"version":            {about: "of the flight; the ETag without its quotes", pattern: versionPattern},
		"attempts":           {about: "how many there were; not there where there was none, or for a tombstone, which does not know it"},
		"Flight.recovery":    {about: "what is done about an attempt of unknown outcome", enum: namesOf(flight.Hold)},
		"Flight.fingerprint": {about: "of the input: `sha256:` and 64 hex digits, or `none`"},
		"cause":              {about: "why it is in doubt, failed or cancelled"},
		"tainted":            {about: "an attempt of unknown outcome has not been settled"},
		"looking":            {about: "a look-up at the provider is due"},
		"overlap":            {about: "evidence of a second effect was seen"},
		"created_at":         {about: "when the key was first used"},
		"not_before":         {about: "when it may be tried again"},
		"held_until":         {about: "no other caller may act before this time: etcd has lost the session of the open attempt, and a person accepted that"},
		"finished_at":        {about: "when it ended"},
		"expires_at":         {about: "when the retention of the receipt is over"},
		"cancel_requested":   {about: "somebody wants it cancelled; the attempt that runs decides"},
		"settled":            {about: "how a person settled the last doubt"},
		"last_attempt":       {about: "the newest attempt"},
		"receipt":            {about: "the stored outcome"},
		"evidence":           {about: "reports that came too late, at most 16 in full"},
		"evidence_more":      {about: "how many more there were"},
		"past":               {about: "earlier generations of the key"},
		"who":                {about: "who it was"},
		"why":                {about: "the reason given"},
		"at":                 {about: "when"},
		"Settled.result":     {about: "what was decided", enum: []string{wire.ResultHappened, wire.ResultNotHappened, wire.ResultFail}},
		"attempt":            {about: "the number of the attempt"},
		"outcome":            {about: "how the attempt ended", enum: outcomes()},
		"Attempt.outcome":    {about: "how it ended; not there while it is open", enum: outcomes()},
		"Receipt.attempt":    {about: "the number of the attempt; not there where there was none, or for a tombstone"},
		"Receipt.outcome":    {about: "`succeeded` or `refused`", enum: []string{flight.Succeeded.String(), flight.Refused.String()}},
		"error":              {about: "what went wrong, for people"},
		"lost":               {about: "it was concluded to be lost, and not reported"},
		"opened_at":          {about: "when it began"},
		"closed_at":          {about: "when it ended"},
		"from":               {about: "who said so: the attempt's `report`, a `lookup` at the provider, a `person`, or an `import`; not there for a tombstone", enum: namesOf(flight.FromReport)},
		"FlightPage.flights": {about: "the flights of this page"},
		"next":               {about: "the cursor of the next page; not there on the last one"},
		"History.events":     {about: "what happened, in order"},
		"Event.id":           {about: "the version of the flight that it made", pattern: versionPattern},
		"kind":               {about: "what happened", enum: namesOf(flight.EventSubmitted)},
		"Event.attempt":      {about: "the attempt that it is about; not there where it is about none"},
		"note":               {about: "an error, a reason, or an external id"},
	}
}

func bodyWords() map[string]words {
	return map[string]words{
		"external_id":      {about: "the id of what the effect made at the provider; it is always kept whole"},
		"Body.external_id": {about: "the id of what the effect made at the provider; it is always kept whole", length: flight.MaxText},
		"body":             {about: "the body, where it is JSON"},
		"body_base64":      {about: "the body, where it is not JSON or was shortened"},
		"content_type":     {about: "of the body", length: 255},
		"truncated":        {about: "the body was shortened; `size` and `digest` are those of the whole"},
		"Body.size":        {about: "the full length in bytes of a body that was shortened", to: 1<<31 - 1},
		"size":             {about: "the full length in bytes; not there where there is none, or for a tombstone"},
		"Body.digest":      {about: "over the whole of a body that was shortened", pattern: `^sha256:[0-9a-fA-F]{64}$`},
		"digest":           {about: "over the whole body", pattern: digestPattern},
	}
}

func problemWords() map[string]words {
	return map[string]words{
		"type":                {about: "leads to the page of the code on this server"},
		"title":               {about: "the code in a few words"},
		"status":              {about: "the HTTP status", from: 400, to: 599},
		"detail":              {about: "what happened this time"},
		"code":                {about: "the stable name of the error; later versions may add more"},
		"retryable":           {about: "the same request, sent again later, may be answered otherwise without anybody having acted"},
		"hint":                {about: "what to do"},
		"Problem.state":       {about: "where the flight stands", enum: states()},
		"Problem.outcome":     {about: "where the retention is over: how the flight had ended", enum: states()},
		"Problem.digest":      {about: "where the retention is over: of the receipt that was kept", pattern: digestPattern},
		"proposed":            {about: "with `idempotency_in_flight` and `in_doubt`: whether the open was proposed to the ledger. If it was not, the answer is this node's own view, and this node will not propose the request"},
		"Problem.ledger_time": {about: "with `open_expired`: the ledger's time, in milliseconds since 1970"},
		"retry_after_ms":      {about: "when it is worth asking again; the header Retry-After says the same in seconds"},
		"errors":              {about: "each place in the request that is wrong"},
		"request_id":          {about: "names this request in the server's log"},
		"pointer":             {about: "a JSON pointer into the body; empty: the body as a whole"},
		"header":              {about: "the name of a header"},
		"parameter":           {about: "the name of a parameter of the query"},
		"FieldError.detail":   {about: "what is wrong there"},
		"about":               {about: "when it is answered, and what is true then"},
		"example":             {about: "an answer with this code"},
	}
}

func eventWords() map[string]words {
	return map[string]words{
		"Event.count":        {about: "with `duplicates`: how many"},
		"Event.flight_id":    {about: "the id of the flight; not there in the history of one", pattern: flightIDPattern},
		"Event.key":          {about: "the full key; not there in the history of one"},
		"Duplicates.count":   {about: "how many"},
		"first_at":           {about: "when the first one came"},
		"last_at":            {about: "when the last one came"},
		"callers":            {about: "the last eight, newest last", items: 8},
		"History.duplicates": {about: "calls that were answered without another effect; not there where there were none"},
		"EventPage.events":   {about: "what happened, in order"},
		"EventPage.next":     {about: "the place to go on behind, also when there is nothing yet", pattern: versionPattern},
		"Gap.after":          {about: "what came behind this place is missing", pattern: versionPattern},
		"until":              {about: "up to this place", pattern: versionPattern},
		"redacted":           {about: "who had the bytes of its input and receipt erased, why and when"},
		"trace_id":           {about: "the trace that the request belongs to"},
	}
}

func importWords() map[string]words {
	return map[string]words{
		"ImportLine.key":         {about: "the full key: namespace, action and id"},
		"ImportLine.outcome":     {about: "`succeeded` or `refused`", enum: []string{flight.Succeeded.String(), flight.Refused.String()}},
		"ImportLine.input":       {about: "what was asked for, where it is known"},
		"ImportLine.fingerprint": {about: "`sha256:` and 64 hex digits, or `none`; not there: that of the input, and none where there is no input"},
		"ImportLine.created_at":  {about: "when the key was first used"},
		"ImportLine.finished_at": {about: "when it ended; the retention counts from here; not there: now"},
		"lines":                  {about: "how many there were"},
		"imported":               {about: "how many receipts are new, or with a dry run would be"},
		"existing":               {about: "how many keys were left alone: what is stored says the same, or is a tombstone"},
		"dry_run":                {about: "nothing was done"},
		"differing":              {about: "keys that were left alone, and are worth a look"},
		"line":                   {about: "its number; the first one is 1"},
		"ImportTrouble.state":    {about: "where the flight stands", enum: states()},
		"ImportTrouble.detail":   {about: "what differs"},
	}
}

func smallWords() map[string]words {
	return map[string]words{
		"Version.version":     {about: "of the program"},
		"Version.ledger_time": {about: "the ledger's time, in milliseconds since 1970"},
		"api":                 {about: "of the interface"},
		"go":                  {about: "the version of Go that it was built with"},
		"deployment":          {about: "names this installation; idempotency keys are made with it"},
		"ready":               {about: "all parts are ready"},
		"checks":              {about: "part by part; with `?verbose`, or where one is not ready"},
		"name":                {about: "which part"},
		"ok":                  {about: "it is ready"},
		"Check.error":         {about: "why it is not"},
		"time":                {about: "by its own clock"},
		"ledger_time":         {about: "what the ledger would stamp now"},
		"data":                {about: "its data directory"},
		"spool":               {about: "reports on its disk that the ledger has not taken; not there where it cannot be read"},
		"waiting":             {about: "they are proposed until it takes them"},
		"put_aside":           {about: "the node cannot read them; a person must look"},
		"etcd":                {about: "the etcd that it claims in; not there where it does not tell"},
		"Ready.node":          {about: "the node that answers; with `?verbose`"},
		"Etcd.version":        {about: "of the server"},
		"problem":             {about: "why this version must not be used"},
		"revision":            {about: "the newest one"},
		"compacted":           {about: "revisions below are forgotten; 0: none"},
		"Etcd.size":           {about: "bytes of its file"},
		"in_use":              {about: "bytes of it that hold something"},
		"quota":               {about: "bytes at which it takes no more writes; 0: not told"},
	}
}
