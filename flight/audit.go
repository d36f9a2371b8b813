package flight

// AuditEntry is one line of the audit log: a command of a person, or a rise of the feature level, that changed the ledger.
type AuditEntry struct {
	Version   Version `cbor:"-"`                    // of the command; the key of the stored row
	At        Time    `cbor:"1,keyasint,omitempty"` // ledger time of the command
	Verb      string  `cbor:"2,keyasint,omitempty"` // of a flight: cancel, free …; of a document: create_token, delete_namespace …
	Namespace string  `cbor:"3,keyasint,omitempty"` // of the subject; AllNamespaces: the whole deployment
	Subject   string  `cbor:"4,keyasint,omitempty"` // the key of a flight, the kind and name of a document, or ""
	Actor     string  `cbor:"5,keyasint,omitempty"`
	Reason    string  `cbor:"6,keyasint,omitempty"`
}

// Audit returns the line of the audit log for a command that changed the ledger; false: commands of this type have none.
func Audit(c Command, at Time) (AuditEntry, bool) {
	e := AuditEntry{At: at}
	switch c := c.(type) {
	case *Submit:
		if c.Submission.Reason == "" {
			return e, false
		}
		e.Verb, e.Actor, e.Reason = "submit", c.Submission.Requester, c.Submission.Reason
	case *Cancel:
		e.Verb, e.Actor, e.Reason = "cancel", c.Actor, c.Reason
	case *Resolve:
		e.Verb, e.Actor, e.Reason = "resolve", c.Actor, c.Reason
	case *DecideApproval:
		e.Verb, e.Actor, e.Reason = "decide_approval", c.Actor, c.Reason
	case *Retry:
		e.Verb, e.Actor, e.Reason = "retry", c.Actor, c.Reason
	case *FreeKey:
		e.Verb, e.Actor, e.Reason = "free", c.Actor, c.Reason
	case *Redact:
		e.Verb, e.Actor, e.Reason = "redact", c.Actor, c.Reason
	case *Import:
		e.Verb, e.Actor = "import", c.Actor
	case *RaiseEpoch:
		e.Verb, e.Actor, e.Reason = "raise_lease_epoch", c.Actor, c.Reason
	case *Restore:
		e.Verb, e.Actor, e.Reason = "accept_restore", c.Actor, c.Reason
		if c.Moved {
			e.Verb = "accept_move"
		}
	case *FinishRestore:
		e.Verb, e.Actor, e.Reason = "finish_restore", c.Actor, c.Reason
		if c.Force {
			e.Verb = "force_finish_restore"
		}
	case *PutDocument:
		if c.ID.Kind == KindNotified { // the leader moves it, not a person
			return e, false
		}
		verb := "change"
		if c.Expect == (Version{}) {
			verb = "create"
		}
		e.setDocument(verb, c.ID, c.Actor, c.Reason)
	case *DeleteDocument:
		if c.ID.Kind == KindNotified {
			return e, false
		}
		e.setDocument("delete", c.ID, c.Actor, c.Reason)
	case *RaiseLevel:
		e.Verb, e.Reason = "raise_feature_level", "every voter reads the new level"
	default:
		return e, false
	}
	switch key := c.Target(); {
	case !key.IsZero():
		e.Namespace, e.Subject = key.Namespace(), key.String()
	case e.Namespace == "":
		e.Namespace = AllNamespaces
	}
	e.Actor, e.Reason = Sanitize(e.Actor), Sanitize(e.Reason)
	return e, true
}

// IsAbout reports whether the line is about a document.
func (e *AuditEntry) IsAbout(id DocumentID) bool {
	return e.Subject == id.Kind+"/"+id.Name && (e.Namespace == id.Namespace || id.Namespace == "" && e.Namespace == AllNamespaces)
}

func (e *AuditEntry) setDocument(verb string, id DocumentID, actor, reason string) {
	e.Verb, e.Namespace, e.Subject, e.Actor, e.Reason = verb+"_"+id.Kind, id.Namespace, id.Kind+"/"+id.Name, actor, reason
}
