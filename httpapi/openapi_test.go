package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

var update = flag.Bool("update", false, "update docs/openapi.json")

// TestDocsAreCurrent compares docs/openapi.json with the code, or with -update writes it. It lists the texts that are missing.
func TestDocsAreCurrent(t *testing.T) {
	g := newGenerator(t)
	doc := g.document()
	data := &bytes.Buffer{}
	require.NoError(t, json.Indent(data, g.encode(nil, "", doc), "", "  "))
	if data.WriteByte('\n'); *update {
		require.NoError(t, os.WriteFile(filepath.Join("..", "docs", "openapi.json"), data.Bytes(), 0o644))
	} else if want, have := strings.Split(data.String(), "\n"), strings.Split(string(docs.OpenAPI), "\n"); !slices.Equal(want, have) {
		for i := range min(len(want), len(have)) {
			require.Equal(t, want[i], have[i], "docs/openapi.json is outdated from line %d on: run make docs", i+1)
		}
		require.Len(t, have, len(want))
	}
	var missing []string
	ids := map[any]bool{}
	walk("", doc, func(at string, o object) {
		for _, name := range []string{"description", "summary", "operationId"} {
			if o[name] == "" {
				missing = append(missing, at+"/"+name)
			}
		}
		if pointer := strings.Split(text(o, "$ref"), "/"); len(pointer) > 1 && member(doc, pointer[1:]...) == nil {
			missing = append(missing, text(o, "$ref"))
		}
		if id := text(o, "operationId"); id != "" {
			require.False(t, ids[id], "two operations have the id %s", id)
			ids[id] = true
			require.True(t, slices.ContainsFunc(doc["tags"].([]any), func(tag any) bool {
				return slices.Equal(o["tags"].([]any), []any{tag.(object)["name"]})
			}), "write one of the tags at %s/tags in docs/openapi.json", at)
		}
	})
	slices.Sort(missing)
	require.Empty(t, missing, "write these in docs/openapi.json")
}

// Each enum in the document lists every name that the code has for it.
func TestEnumsAreComplete(t *testing.T) {
	g := newGenerator(t)
	states, final := enumNames(flight.StateAbsent), []string{flight.OutcomeSucceeded.String(), flight.OutcomeRefused.String()}
	lists := map[string][]string{"state": states, "outcome": enumNames(flight.OutcomeSucceeded), "recovery": enumNames(flight.RecoveryHold),
		"from": enumNames(flight.SourceReport), "kind": enumNames(flight.EventSubmitted), wire.HeaderState: states,
		"Block/reason": {wire.BlockedByRestore, wire.BlockedByLane, wire.BlockedByPause, wire.BlockedByApproval, wire.BlockedByDoubt,
			wire.BlockedByCallback, wire.BlockedByTime, wire.BlockedByNoWorkers, wire.BlockedByGivenBack},
		"OpenAnswer/decision": {wire.DecisionProceed, wire.DecisionReplay, wire.DecisionVerify}, "Problem/decision": {wire.DecisionReplay},
		"SubmitAnswer/status":        {wire.StatusQueued, wire.StatusDuplicate},
		"ActionAnswer/status":        {wire.ActionCreated, wire.ActionUnchanged, wire.ActionChanged, wire.ActionDifferent, wire.ActionUndeclared},
		"VerificationRequest/result": {wire.ResultHappened, wire.ResultNotHappened, wire.ResultUnknown},
		"ResolveRequest/result":      {wire.ResultHappened, wire.ResultNotHappened, wire.ResultFail},
		"Problem/outcome":            states, "Saga/state": wire.SagaStates(), "Receipt/outcome": final, "ImportLine/outcome": final}
	check := func(at, name string, schema object) {
		want, found := lists[at]
		if !found {
			want, found = lists[name]
		}
		if found {
			require.Equal(t, fmt.Sprint(want), fmt.Sprint(schema["enum"]), at)
		}
	}
	for name := range g.schemas {
		for field, schema := range member(g.schemas, name, "properties") {
			check(name+"/"+field, field, schema.(object))
		}
	}
	check("", wire.HeaderState, member(g.old, "components", "headers", wire.HeaderState, "schema"))
}

func enumNames[T interface {
	~uint8
	String() string
}](first T) (all []string) {
	for v := first; v.String() != "invalid"; v++ {
		all = append(all, v.String())
	}
	return all
}

// The document has the default and the maximum of each parameter that limits a list.
func TestLimitsOfLists(t *testing.T) {
	g := newGenerator(t)
	walk("", g.paths, func(at string, p object) {
		usual, most := defaultPage, maxPage
		switch {
		case strings.Contains(at, "/events/"):
			usual, most = defaultEvents, maxEvents
		case strings.Contains(at, "/v1/restore/asked/"):
			usual = maxPage
		}
		if p["name"] == "limit" {
			schema := member(p, "schema")
			require.Equal(t, fmt.Sprintln(usual, most), fmt.Sprintln(schema["default"], schema["maximum"]), at)
		}
	})
}
