package flight_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

// ledgerOfDocuments applies commands as a state machine does, one version after the other.
type ledgerOfDocuments struct {
	documents flight.Documents
	due       *flight.Due
	header    flight.Header
}

func (l *ledgerOfDocuments) apply(c flight.Command) flight.Reply {
	l.header.Version.Index++
	l.header.Now++
	return l.documents.Apply(&l.header, l.due, c)
}

var documentID = flight.DocumentID{Namespace: "billing", Kind: flight.KindToken, Name: "worker"}

// Each change names the version that its author has seen. A second author who has seen the same version is rejected.
func TestDocument_ChangesAreBoundToAVersion(t *testing.T) {
	l := ledgerOfDocuments{due: flight.NewDue()}
	put := &flight.PutDocument{ID: documentID, Body: []byte("one"), Actor: "ann", Reason: "new"}
	first := l.apply(put)
	require.Equal(t, flight.DecisionAccepted, first.Decision)
	require.True(t, first.Changed)

	other := *put
	other.Actor = "bob"
	late := l.apply(&other)
	require.Equal(t, flight.DecisionFailedPrecondition, late.Decision)
	require.Equal(t, first.Document, late.Document, "the answer shows the present document")

	seen := first.Document.Version
	for name, c := range map[string]flight.Command{
		"put":    &flight.PutDocument{ID: documentID, Expect: flight.Version{Index: 99}, Body: []byte("two")},
		"delete": &flight.DeleteDocument{ID: documentID, Expect: flight.Version{Index: 99}},
	} {
		r := l.apply(c)
		require.Equal(t, flight.DecisionFailedPrecondition, r.Decision, name)
		require.False(t, r.Changed, name)
		require.Equal(t, first.Document, l.documents.Get(documentID), name)
	}
	missing := flight.DocumentID{Namespace: "billing", Kind: flight.KindToken, Name: "missing"}
	require.Equal(t, flight.DecisionFailedPrecondition, l.apply(&flight.PutDocument{ID: missing, Expect: seen, Body: []byte("x")}).Decision)
}

// Every command may arrive again, right after it or later, and is answered as the first time.
func TestDocument_RepeatsChangeNothing(t *testing.T) {
	l := ledgerOfDocuments{due: flight.NewDue()}
	twice := func(c flight.Command) flight.Reply {
		t.Helper()
		r := l.apply(c)
		require.Equal(t, flight.DecisionAccepted, r.Decision, "%T", c)
		require.True(t, r.Changed, "%T", c)
		again := l.apply(c)
		require.Equal(t, flight.DecisionAccepted, again.Decision, "%T", c)
		require.False(t, again.Changed, "%T", c)
		require.Equal(t, r.Document, again.Document, "%T", c)
		return r
	}
	r := twice(&flight.PutDocument{ID: documentID, Body: []byte("one"), Actor: "ann"})
	r = twice(&flight.PutDocument{ID: documentID, Expect: r.Document.Version, Body: []byte("two"), Actor: "ann"})
	require.Equal(t, "two", string(r.Document.Body))
	twice(&flight.DeleteDocument{ID: documentID, Expect: r.Document.Version, Actor: "ann"})
	require.Nil(t, l.documents.Get(documentID))
}

// Whatever arrives in whatever order: a document changes only by a command that names its present version.
func TestDocument_RandomCommands(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := ledgerOfDocuments{due: flight.NewDue()}
		versions := []flight.Version{{}}
		for range rapid.IntRange(1, 60).Draw(rt, "commands") {
			id := documentID
			id.Name = rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name")
			expect := rapid.SampledFrom(versions).Draw(rt, "expect")
			before := l.documents.Get(id)
			var c flight.Command
			if rapid.Bool().Draw(rt, "put") {
				c = &flight.PutDocument{ID: id, Expect: expect, Body: []byte(rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "body"))}
			} else {
				c = &flight.DeleteDocument{ID: id, Expect: expect}
			}
			reply := l.apply(c)
			after := l.documents.Get(id)
			present := flight.Version{}
			if before != nil {
				present = before.Version
			}
			if reply.Changed {
				require.Equal(rt, present, expect)
			} else {
				require.Equal(rt, before, after)
			}
			if after != nil {
				versions = append(versions, after.Version)
				require.NotEmpty(rt, after.Body)
			}
		}
	})
}

func TestDocument_Bounds(t *testing.T) {
	for name, c := range map[string]flight.Command{
		"empty body":     &flight.PutDocument{ID: documentID},
		"long body":      &flight.PutDocument{ID: documentID, Body: make([]byte, flight.MaxDocument+1)},
		"namespace":      &flight.PutDocument{ID: flight.DocumentID{Namespace: "a/b", Kind: "token", Name: "n"}, Body: []byte("x")},
		"no name":        &flight.DeleteDocument{ID: flight.DocumentID{Namespace: "a", Kind: "token"}},
		"kind with NUL":  &flight.DeleteDocument{ID: flight.DocumentID{Namespace: "a", Kind: "to\x00ken", Name: "n"}},
		"invalid spaces": &flight.DeleteDocument{ID: flight.DocumentID{Namespace: "a", Kind: "token", Name: "n n"}},
	} {
		_, err := flight.Encode(c)
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, name)
	}
	_, err := flight.Encode(&flight.PutDocument{ID: flight.DocumentID{Namespace: flight.AllNamespaces, Kind: "token", Name: "n"}, Body: make([]byte, flight.MaxDocument)})
	require.NoError(t, err)

	l := ledgerOfDocuments{due: flight.NewDue()}
	fill := func(namespace string, n int) {
		for i := range n {
			l.documents.Restore(&flight.Document{ID: flight.DocumentID{Namespace: namespace, Kind: "token", Name: fmt.Sprint(i)}, Version: flight.Version{Index: 1}})
		}
	}
	put := func(namespace string) flight.Decision {
		return l.apply(&flight.PutDocument{ID: flight.DocumentID{Namespace: namespace, Kind: "token", Name: "new"}, Body: []byte("x")}).Decision
	}
	fill("greedy", flight.MaxDocumentsOfNamespace)
	require.Equal(t, flight.DecisionExhausted, put("greedy"))
	require.Equal(t, flight.DecisionAccepted, put("other"))
	l.apply(&flight.DeleteDocument{ID: flight.DocumentID{Namespace: "greedy", Kind: "token", Name: "0"}, Expect: flight.Version{Index: 1}})
	require.Equal(t, flight.DecisionAccepted, put("greedy"), "a deletion makes room")
	for n := range 8 {
		fill(fmt.Sprint("team-", n), flight.MaxDocumentsOfNamespace)
	}
	require.Equal(t, flight.DecisionExhausted, put("late"))
	require.Equal(t, flight.DecisionAccepted, put(flight.AllNamespaces), "an operator can still make a token")
	fill(flight.AllNamespaces, flight.ReservedDocuments)
	require.Equal(t, flight.DecisionExhausted, l.apply(&flight.PutDocument{ID: documentID, Body: []byte("x")}).Decision)
}

// The level never falls, and a repeat changes nothing.
func TestRaiseLevel(t *testing.T) {
	v := flight.View{}
	require.Equal(t, flight.LevelBase, v.Header.FeatureLevel())
	for _, c := range []struct{ raise, want uint32 }{{3, 3}, {flight.LevelBase, 3}, {4, 4}} {
		var r flight.Reply
		v, r = flight.Apply(v, &flight.RaiseLevel{Level: c.raise})
		require.Equal(t, flight.DecisionAccepted, r.Decision)
		require.Equal(t, c.want, v.Header.FeatureLevel())
	}
}

// Every command in which a person is named has a line in the audit log.
func TestAudit_HasEveryCommandWithAnActor(t *testing.T) {
	for _, c := range flight.NewCommands() {
		_, named := reflect.TypeOf(c).Elem().FieldByName("Actor")
		_, audited := flight.Audit(c, 1)
		if _, raise := c.(*flight.RaiseLevel); !raise {
			require.Equal(t, named, audited, "%T", c)
		}
	}
}

// Two sagas are started with a definition that is put and deleted at any time, and end; every command may arrive twice. In every order a saga
// that is not over has its definition, and a definition that none uses can be deleted.
func TestDocument_ASagaKeepsItsDefinition(t *testing.T) {
	definition := flight.DefinitionID("test", "trip@1")
	type world struct {
		ledgerOfDocuments
		flights [2]*flight.Flight
	}
	apply := func(w *world, n int, c flight.Command) flight.Decision {
		w.header.Version.Index++
		after, reply := flight.Apply(flight.View{Header: w.header, Flight: w.flights[n], NoDefinition: w.documents.LackDefinition(c)}, c)
		if reply.Changed {
			w.due.Update(w.flights[n], after.Flight)
			w.flights[n] = after.Flight
		}
		return reply.Decision
	}
	uses := func(w *world) (n int) {
		for _, f := range w.flights {
			if f != nil && !f.State.Terminal() {
				n++
			}
		}
		return n
	}
	commands := []func(w *world){
		func(w *world) { w.apply(&flight.PutDocument{ID: definition, Body: []byte("{}")}) },
		func(w *world) {
			old := w.documents.Get(definition)
			if old == nil {
				return
			}
			deleted := w.apply(&flight.DeleteDocument{ID: definition, Expect: old.Version}).Decision == flight.DecisionAccepted
			require.Equal(t, uses(w) == 0, deleted, "a definition is deleted if no saga needs it")
		},
	}
	for n := range 2 {
		key := flight.MustKey(fmt.Sprint("test/trip/", n))
		commands = append(commands, func(w *world) {
			unused, stored := w.flights[n] == nil, w.documents.Get(definition) != nil
			d := apply(w, n, &flight.Submit{Key: key, Submission: flight.Submission{Policy: flight.Policy{Saga: true, Definition: "trip@1"}}})
			require.Equal(t, unused && !stored, d == flight.DecisionNotFound)
		}, func(w *world) {
			if f := w.flights[n]; f != nil && !f.State.Terminal() {
				token := flight.Token{StoreEpoch: 1, Number: f.Fence.Number + 1}
				apply(w, n, &flight.Open{Key: key, Nonce: flight.Nonce{byte(n + 1)}, NotAfter: w.header.Now.Add(1000), StoreEpoch: 1})
				require.Equal(t, flight.DecisionAccepted, apply(w, n, &flight.Report{Key: key, Generation: 1, Token: token, Outcome: flight.OutcomeSucceeded}))
			}
		})
	}
	const depth = 6
	for order := range 6 * 6 * 6 * 6 * 6 * 6 {
		w := &world{ledgerOfDocuments: ledgerOfDocuments{due: flight.NewDue()}}
		w.header.StoreEpoch, w.header.LeaseEpoch = 1, 1
		for range depth {
			commands[order%len(commands)](w)
			order /= len(commands)
			require.Equal(t, uses(w), w.due.SagasOf(definition))
			require.True(t, uses(w) == 0 || w.documents.Get(definition) != nil, "a saga that is not over has its definition")
		}
	}
}

// The position of a target of notifications is no decision of a person.
func TestNotifyDocuments(t *testing.T) {
	id := func(kind string) flight.DocumentID {
		return flight.DocumentID{Namespace: flight.AllNamespaces, Kind: kind, Name: "oncall"}
	}
	for _, kind := range []string{flight.KindNotify, flight.KindNotified} {
		for _, c := range []flight.Command{&flight.PutDocument{ID: id(kind), Body: []byte("x")}, &flight.DeleteDocument{ID: id(kind)}} {
			_, audited := flight.Audit(c, 1)
			require.Equal(t, kind == flight.KindNotify, audited)
		}
	}
}
