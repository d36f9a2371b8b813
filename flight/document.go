package flight

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Bounds of documents. They bound the memory of a node, which keeps every document.
const (
	// MaxDocument is the maximum length of a document's body in bytes.
	MaxDocument = 64 << 10
	// MaxDocuments is the number of documents that a ledger stores. A PutDocument beyond it, or beyond the bounds below, is
	// answered with DecisionExhausted.
	MaxDocuments = 10_000
	// MaxDocumentsOfNamespace is the number of documents of one namespace.
	MaxDocumentsOfNamespace = 1000
	// ReservedDocuments is the number of documents that only AllNamespaces may create.
	ReservedDocuments = 1000
)

// AllNamespaces is the namespace of documents that concern the whole deployment. No key has it.
const AllNamespaces = "*"

// The kinds of documents that this version uses. The ledger stores a document of any kind without reading its body.
const (
	KindToken     = "token"     // a credential of the API
	KindNamespace = "namespace" // the limits of a namespace
	KindSettings  = "settings"  // settings of the whole deployment
	KindSaga      = "saga"      // a definition of a saga, which never changes
	// KindReplacement is of the node that a new one has replaced, by its name.
	KindReplacement = "replacement"
	// KindQueue is of an action whose jobs are paused, by its name.
	KindQueue  = "queue"
	KindAction = "action" // the policy of an action's jobs
	KindNotify = "notify" // a target of notifications
	// KindNotified is of the position up to which a target was notified, by its name. Its changes have no line in the audit log.
	KindNotified = "notified"
)

// QueueID returns the id of the document that pauses an action: while it has a body, no job of the action is handed out.
func QueueID(namespace, action string) DocumentID {
	return DocumentID{Namespace: namespace, Kind: KindQueue, Name: action}
}

// DefinitionID returns the id of the document of a saga's definition, such as trip@3.
func DefinitionID(namespace, definition string) DocumentID {
	name := definition
	if at := strings.LastIndexByte(name, '@'); at >= 0 {
		name = name[:at] + "." + name[at+1:]
	}
	return DocumentID{Namespace: namespace, Kind: KindSaga, Name: name}
}

// DocumentID identifies a document.
type DocumentID struct {
	Namespace string `cbor:"1,keyasint,omitempty"` // of the callers that it concerns, or AllNamespaces
	Kind      string `cbor:"2,keyasint,omitempty"`
	Name      string `cbor:"3,keyasint,omitempty"`
}

// IsZero reports whether id names no document.
func (id DocumentID) IsZero() bool { return id == DocumentID{} }

// String returns the id for people: namespace/kind/name.
func (id DocumentID) String() string { return id.Namespace + "/" + id.Kind + "/" + id.Name }

// Compare orders ids by kind, namespace and name.
func (id DocumentID) Compare(other DocumentID) int {
	return cmp.Or(strings.Compare(id.Kind, other.Kind), strings.Compare(id.Namespace, other.Namespace), strings.Compare(id.Name, other.Name))
}

// check returns an *InvalidError for an id that no document can have.
func (id DocumentID) check() error {
	if id.Namespace != AllNamespaces {
		if err := checkWord("namespace", id.Namespace); err != nil {
			return err
		}
	}
	if err := checkWord("kind", id.Kind); err != nil {
		return err
	}
	return checkWord("name", id.Name)
}

// Document is a named and versioned piece of configuration. The ledger does not read its bodies.
type Document struct {
	ID        DocumentID  `cbor:"1,keyasint"`
	Version   Version     `cbor:"2,keyasint"`          // of the last change; the next change must name it
	Previous  Version     `cbor:"3,keyasint,omitzero"` // the version that the last change named: a repeat of it is recognised
	Body      []byte      `cbor:"4,keyasint,omitempty"`
	CreatedAt Time        `cbor:"5,keyasint,omitempty"`
	Changed   Attribution `cbor:"6,keyasint,omitzero"` // the last change
}

// PutDocument writes the body of a document. Expect is the version that the author has seen; zero: the document must not
// exist.
type PutDocument struct {
	ID     DocumentID `cbor:"1,keyasint"`
	Expect Version    `cbor:"2,keyasint,omitzero"`
	Body   []byte     `cbor:"3,keyasint,omitempty"`
	Actor  string     `cbor:"4,keyasint,omitempty"`
	Reason string     `cbor:"5,keyasint,omitempty"`
}

// DeleteDocument deletes a document. The definition of a saga that is not over stays.
type DeleteDocument struct {
	ID     DocumentID `cbor:"1,keyasint"`
	Expect Version    `cbor:"2,keyasint,omitzero"`
	Actor  string     `cbor:"3,keyasint,omitempty"`
	Reason string     `cbor:"4,keyasint,omitempty"`
}

// DocumentEvent returns the document and the kind of the event of a command about a document, or false for other commands.
func DocumentEvent(c Command) (id DocumentID, kind EventKind, ok bool) {
	switch c := c.(type) {
	case *PutDocument:
		return c.ID, EventDocumentPut, true
	case *DeleteDocument:
		return c.ID, EventDocumentDeleted, true
	}
	return id, 0, false
}

// Documents are all documents of a ledger. The zero value has none.
type Documents struct {
	byID map[DocumentID]*Document
	in   map[string]int // number of documents by namespace
}

// Get returns a document, which must not be changed, or nil if it does not exist.
func (d *Documents) Get(id DocumentID) *Document { return d.byID[id] }

// List returns the documents of a kind in the order of their ids; of all kinds if kind is empty.
func (d *Documents) List(kind string) []*Document {
	var list []*Document
	for id, doc := range d.byID {
		if kind == "" || id.Kind == kind {
			list = append(list, doc)
		}
	}
	slices.SortFunc(list, func(a, b *Document) int { return a.ID.Compare(b.ID) })
	return list
}

// Restore adds a stored document.
func (d *Documents) Restore(doc *Document) {
	if d.byID == nil {
		d.byID, d.in = make(map[DocumentID]*Document), make(map[string]int)
	}
	if d.byID[doc.ID] == nil {
		d.in[doc.ID.Namespace]++
	}
	d.byID[doc.ID] = doc
}

// hasRoom reports whether a namespace may create another document.
func (d *Documents) hasRoom(namespace string) bool {
	if namespace == AllNamespaces {
		return len(d.byID) < MaxDocuments
	}
	return len(d.byID) < MaxDocuments-ReservedDocuments && d.in[namespace] < MaxDocumentsOfNamespace
}

// LackDefinition reports whether c starts a saga whose definition is not stored: View.NoDefinition.
func (d *Documents) LackDefinition(c Command) bool {
	s, ok := c.(*Submit)
	if !ok || !s.Submission.Policy.Saga {
		return false
	}
	return d.byID[DefinitionID(s.Key.Namespace(), s.Submission.Policy.Definition)] == nil
}

// Apply applies a command about a document, by rules that read nothing but h, d and c, and due for the sagas that are not over.
// DecisionAccepted: the document is as the command wants it, now or since the first delivery of the command; Reply.Changed is set if it
// changed just now. DecisionFailedPrecondition: the document has another version than the expected one, or is the definition of a
// saga that is not over. Reply.Document is the document after the command.
func (d *Documents) Apply(h *Header, due *Due, c Command) Reply {
	var decision Decision
	var id DocumentID
	changed := false
	switch c := c.(type) {
	case *PutDocument:
		id = c.ID
		decision, changed = d.put(h, c)
	case *DeleteDocument:
		id = c.ID
		decision, changed = d.delete(due, c)
	}
	return Reply{Decision: decision, Changed: changed, Document: d.byID[id]}
}

func (d *Documents) put(h *Header, c *PutDocument) (_ Decision, changed bool) {
	old := d.byID[c.ID]
	switch {
	case old == nil && c.Expect != Version{}:
		return DecisionFailedPrecondition, false
	case old == nil && !d.hasRoom(c.ID.Namespace):
		return DecisionExhausted, false
	case old != nil && old.Version != c.Expect:
		return c.answerOutdated(old), false
	}
	next := &Document{ID: c.ID, CreatedAt: h.Now}
	if old != nil {
		*next = *old
	}
	next.Body, next.Previous, next.Version = c.Body, c.Expect, h.Version
	next.Changed = Attribution{Actor: Sanitize(c.Actor), Reason: Sanitize(c.Reason), At: h.Now}
	d.Restore(next)
	return DecisionAccepted, true
}

// delete accepts the deletion of a document that does not exist, because a repeat of a deletion finds none.
//
// A saga goes on by its definition, and without it would wait for ever. So the ledger's order decides: a start before the deletion keeps the
// definition, and a start after it finds none.
func (d *Documents) delete(due *Due, c *DeleteDocument) (_ Decision, changed bool) {
	switch old := d.byID[c.ID]; {
	case old == nil:
		return DecisionAccepted, false
	case old.Version != c.Expect, due.SagasOf(c.ID) > 0:
		return DecisionFailedPrecondition, false
	}
	delete(d.byID, c.ID)
	d.in[c.ID.Namespace]--
	return DecisionAccepted, true
}

// answerOutdated answers a change that names an older version than the present one: it is accepted if it is a repeat of the last
// change.
func (c *PutDocument) answerOutdated(now *Document) Decision {
	if bytes.Equal(now.Body, c.Body) && now.Previous == c.Expect && now.Changed.Actor == Sanitize(c.Actor) && now.Changed.Reason == Sanitize(c.Reason) {
		return DecisionAccepted
	}
	return DecisionFailedPrecondition
}

// checkDocumentCommand returns an *InvalidError for a command about a document that the ledger must not store.
func checkDocumentCommand(c Command) error {
	switch c := c.(type) {
	case *PutDocument:
		if len(c.Body) == 0 || len(c.Body) > MaxDocument {
			return &InvalidError{Field: "body", Detail: "a document has from 1 byte to 64 KiB"}
		}
		return c.ID.check()
	case *DeleteDocument:
		return c.ID.check()
	}
	return nil
}
