package wire

// AppendJSON writes the request. The input goes out byte for byte.
func (r *OpenRequest) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("action", r.Action)
	w.str("id", r.ID)
	w.optRaw("input", r.Input)
	w.optStr("fingerprint", r.Fingerprint)
	w.optStr("nonce", r.Nonce)
	w.optInt("not_after", r.NotAfter)
	w.optStr("session", r.Session)
	w.optStr("owner", r.Owner)
	w.optInt("ttl_ms", r.TTLMS)
	w.optWait(r.WaitMS)
	r.Policy.fill(&w)
	w.close()
	return w.b
}

func (w *writer) optWait(ms *int64) {
	if ms != nil {
		w.int("wait_ms", *ms)
	}
}

func (p *Policy) fill(w *writer) {
	w.optInt("attempt_timeout_ms", p.AttemptTimeoutMS)
	w.optInt("settle_ms", p.SettleMS)
	w.optInt("provider_window_ms", p.ProviderWindowMS)
	w.optStr("recovery", p.Recovery)
	w.optBool("lookup", p.Lookup)
	w.optInt("look_tries", p.LookTries)
	w.optStr("retention", p.Retention)
}

func (r *Body) fill(w *writer) {
	w.optStr("external_id", r.ExternalID)
	w.optRaw("body", r.JSON)
	w.optBase64("body_base64", r.Base64)
	w.optStr("content_type", r.ContentType)
	w.optBool("truncated", r.Truncated)
	w.optInt("size", r.Size)
	w.optStr("digest", r.Digest)
}

// AppendJSON writes the request.
func (r *AbandonRequest) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("action", r.Action)
	w.str("id", r.ID)
	w.str("nonce", r.Nonce)
	w.int("not_after", r.NotAfter)
	w.optStr("reason", r.Reason)
	w.close()
	return w.b
}

// AppendJSON writes the request. The body goes out byte for byte.
func (r *ReportRequest) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("fencing_token", r.FencingToken)
	w.optStr("key", r.Key)
	w.str("outcome", r.Outcome)
	w.optStr("error", r.Error)
	r.Body.fill(&w)
	w.close()
	return w.b
}

// AppendJSON writes the request. The body goes out byte for byte.
func (r *VerdictRequest) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("probe", r.Probe)
	w.str("result", r.Result)
	w.optStr("session", r.Session)
	w.optStr("nonce", r.Nonce)
	w.optInt("not_after", r.NotAfter)
	w.optStr("owner", r.Owner)
	w.optInt("ttl_ms", r.TTLMS)
	w.optWait(r.WaitMS)
	r.Body.fill(&w)
	w.close()
	return w.b
}

// AppendJSON writes the request. The body goes out byte for byte.
func (r *ResolveRequest) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("result", r.Result)
	w.str("reason", r.Reason)
	w.optStr("as", r.As)
	r.Body.fill(&w)
	w.close()
	return w.b
}

// AppendJSON writes the request.
func (r *OperatorRequest) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.optStr("key", r.Key)
	w.str("reason", r.Reason)
	w.optStr("as", r.As)
	w.close()
	return w.b
}

// AppendJSON writes the answer. Input and receipt go out byte for byte.
func (a *OpenAnswer) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("decision", a.Decision)
	w.optStr("nonce", a.Nonce)
	w.optStr("flight_id", a.FlightID)
	w.optStr("key", a.Key)
	w.optInt("generation", int64(a.Generation))
	w.optInt("attempt", int64(a.Attempt))
	w.optStr("fencing_token", a.FencingToken)
	w.optStr("idempotency_key", a.IdempotencyKey)
	w.optStr("probe", a.Probe)
	w.optRaw("input", a.Input)
	w.optBase64("input_base64", a.InputBase64)
	w.optStr("input_content_type", a.InputType)
	w.optStr("session", a.Session)
	w.optInt("trust_ms", a.TrustMS)
	w.optInt("renew_every_ms", a.RenewEveryMS)
	if a.ResendMS != nil {
		w.int("resend_ms", *a.ResendMS)
	}
	w.optStr("deployment", a.Deployment)
	w.optBool("policy_differs", a.PolicyDiffers)
	if a.Policy != nil {
		w.object("policy", a.Policy.fill)
	}
	if a.Previous != nil {
		w.object("previous", a.Previous.fill)
	}
	if a.Flight != nil {
		w.object("flight", a.Flight.fill)
	}
	w.close()
	return w.b
}

func (a *Attempt) fill(w *writer) {
	w.int("attempt", int64(a.Attempt))
	w.optStr("outcome", a.Outcome)
	w.optStr("error", a.Error)
	w.optStr("owner", a.Owner)
	w.optBool("lost", a.Lost)
	w.optTime("opened_at", a.OpenedAt)
	w.optTime("closed_at", a.ClosedAt)
}

// AppendJSON writes the flight. The receipt's body goes out byte for byte.
func (f *Flight) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	f.fill(&w)
	w.close()
	return w.b
}

func (f *Flight) fill(w *writer) {
	w.str("id", f.ID)
	w.optStr("key", f.Key)
	w.str("state", f.State)
	w.optStr("source", f.Source)
	w.str("version", f.Version)
	w.int("generation", int64(f.Generation))
	w.optInt("attempts", int64(f.Attempts))
	w.optStr("recovery", f.Recovery)
	w.optStr("fingerprint", f.Fingerprint)
	w.optStr("cause", f.Cause)
	w.optBool("tainted", f.Tainted)
	w.optBool("looking", f.Looking)
	w.optBool("overlap", f.Overlap)
	w.optTime("created_at", f.CreatedAt)
	w.optTime("not_before", f.NotBefore)
	w.optTime("held_until", f.HeldUntil)
	w.optTime("finished_at", f.FinishedAt)
	w.optTime("expires_at", f.ExpiresAt)
	if f.CancelRequested != nil {
		w.object("cancel_requested", f.CancelRequested.fill)
	}
	if f.Settled != nil {
		w.object("settled", func(w *writer) {
			w.str("result", f.Settled.Result)
			f.Settled.Mark.fill(w)
		})
	}
	if f.Redacted != nil {
		w.object("redacted", f.Redacted.fill)
	}
	if f.LastAttempt != nil {
		w.object("last_attempt", f.LastAttempt.fill)
	}
	if f.Receipt != nil {
		w.object("receipt", f.Receipt.fill)
	}
	list(w, "evidence", f.Evidence, (*Evidence).fill)
	w.optInt("evidence_more", int64(f.EvidenceMore))
	list(w, "past", f.Past, (*Past).fill)
}

// list writes an array of objects, where there are any.
func list[T any](w *writer, name string, items []T, fill func(*T, *writer)) {
	if len(items) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i := range items {
		w.open()
		fill(&items[i], w)
		w.close()
		w.b = append(w.b, ',')
	}
	w.b[len(w.b)-1] = ']'
	w.b = append(w.b, ',')
}

func (m *Mark) fill(w *writer) {
	w.str("who", m.Who)
	w.optStr("why", m.Why)
	w.optTime("at", m.At)
}

func (r *Receipt) fill(w *writer) {
	w.str("outcome", r.Outcome)
	w.optStr("external_id", r.ExternalID)
	w.optStr("content_type", r.ContentType)
	w.optRaw("body", r.Body)
	w.optBase64("body_base64", r.BodyBase64)
	w.optInt("size", int64(r.Size))
	w.optBool("truncated", r.Truncated)
	w.str("digest", r.Digest)
	w.optInt("attempt", int64(r.Attempt))
	w.optStr("from", r.From)
	w.optTime("at", r.At)
}

func (e *Evidence) fill(w *writer) {
	w.int("generation", int64(e.Generation))
	w.int("attempt", int64(e.Attempt))
	w.str("outcome", e.Outcome)
	w.optStr("external_id", e.ExternalID)
	w.optStr("digest", e.Digest)
	w.optStr("error", e.Error)
	w.optTime("at", e.At)
}

func (p *Past) fill(w *writer) {
	w.int("generation", int64(p.Generation))
	w.str("state", p.State)
	w.optStr("who", p.Who)
	w.optStr("why", p.Why)
	w.optTime("at", p.At)
	w.optStr("external_id", p.ExternalID)
	w.optStr("digest", p.Digest)
}

// AppendJSON writes the page.
func (p *FlightPage) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	if len(p.Flights) == 0 {
		w.optRaw("flights", []byte("[]"))
	}
	list(&w, "flights", p.Flights, (*Flight).fill)
	w.optStr("next", p.Next)
	w.close()
	return w.b
}

// AppendJSON writes the problem.
func (p *Problem) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("type", p.Type)
	w.str("title", p.Title)
	w.int("status", int64(p.Status))
	w.optStr("detail", p.Detail)
	w.str("code", string(p.Code))
	w.bool("retryable", p.Retryable)
	w.optStr("hint", p.Hint)
	w.optStr("flight_id", p.FlightID)
	w.optStr("key", p.Key)
	w.optStr("state", p.State)
	w.optStr("version", p.Version)
	w.optInt("retry_after_ms", p.RetryAfterMS)
	list(&w, "errors", p.Errors, (*FieldError).fill)
	w.optStr("request_id", p.RequestID)
	w.optStr("trace_id", p.TraceID)
	w.optStr("outcome", p.Outcome)
	w.optStr("digest", p.Digest)
	w.optStr("decision", p.Decision)
	if p.Flight != nil {
		w.object("flight", p.Flight.fill)
	}
	if p.Proposed != nil {
		w.bool("proposed", *p.Proposed)
	}
	w.optInt("ledger_time", p.LedgerTime)
	w.close()
	return w.b
}

func (e *FieldError) fill(w *writer) {
	w.optStr("pointer", e.Pointer)
	if e.Pointer == "" && e.Header == "" && e.Parameter == "" {
		w.str("pointer", "") // the document as a whole
	}
	w.optStr("header", e.Header)
	w.optStr("parameter", e.Parameter)
	w.str("detail", e.Detail)
}
