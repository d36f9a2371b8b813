package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// Requests and answers about the policies of actions.
type (
	ActionPolicy     = wire.ActionPolicy
	ActionRequest    = wire.ActionRequest
	ActionAnswer     = wire.ActionAnswer
	Action           = wire.Action
	PolicyDifference = wire.PolicyDifference
)

// Actions returns the actions of the client's namespace that have a document, by name.
func (re *requester) Actions(ctx context.Context) ([]Action, error) {
	list, err := decode[wire.ActionList](re.ask(ctx, request{method: http.MethodGet, path: "/v1/actions"}))
	if err != nil {
		return nil, err
	}
	return list.Actions, nil
}

// Action returns the document of an action. If the action has no document, the *Error has the code not_found. A field that this version
// of the client does not know is an error, because a caller that writes the document back would remove the field.
func (re *requester) Action(ctx context.Context, name string) (*Action, error) {
	answer, err := re.ask(ctx, request{method: http.MethodGet, path: actionPath(name)})
	act, err := decode[Action](answer, err)
	if err != nil {
		return nil, err
	}
	if err := strictjson.DecodeRequest(answer.body, new(Action)); err != nil {
		return nil, fmt.Errorf("client: the document of the action %s: %w; upgrade this program to the version of the server", name, err)
	}
	return act, nil
}

// PutAction makes the policy that of the action's document, whatever was there. The same request again is answered unchanged.
func (re *requester) PutAction(ctx context.Context, name string, r ActionRequest) (*ActionAnswer, error) {
	ask := adminRequest(http.MethodPut, actionPath(name), &r)
	return decode[ActionAnswer](re.ask(ctx, ask))
}

// DeleteAction deletes the document of an action. Jobs that were submitted keep their policies.
func (re *requester) DeleteAction(ctx context.Context, name, reason string) error {
	_, err := re.delete(ctx, actionPath(name), reason)
	return err
}

func actionPath(name string) string { return "/v1/actions/" + url.PathEscape(name) }

// PolicyDiffers is returned by Worker.Run if the policy of the worker differs from the document of its action in fields that decide
// whether an effect can happen twice, or in which order effects happen. No job was claimed.
type PolicyDiffers struct {
	Action      string
	Differences []PolicyDifference // that refuse
}

func (e *PolicyDiffers) Error() string {
	var fields []string
	for _, d := range e.Differences {
		fields = append(fields, fmt.Sprintf("%s is %s here, and %s in the document", d.Field, orNone(d.Own), orNone(d.Document)))
	}
	return fmt.Sprintf("client: the worker's policy of the action %s differs from its document: %s; change the worker, or the document with flightd actions apply",
		e.Action, strings.Join(fields, "; "))
}

func orNone(value string) string {
	if value == "" {
		return "not set"
	}
	return value
}

// declare compares the policies that the worker brings with the documents of their actions, and creates those that are missing. Each
// action is declared once; what was not answered is declared before the next claim.
func (w *Worker) declare(ctx context.Context) error {
	log := w.client.opts.logger
	for _, name := range w.names {
		h := w.actions[name]
		if h.policy.IsZero() {
			continue
		}
		r := wire.ActionRequest{ActionPolicy: h.policy}
		a, err := decode[ActionAnswer](w.client.ask(ctx, request{method: http.MethodPost, path: actionPath(name) + "/declare", body: strictjson.Append(nil, &r)}))
		if err != nil {
			return fmt.Errorf("declare the policy of the action %s: %w", name, err)
		}
		if a.Status == wire.ActionUndeclared {
			log.Warn("flightd: the policy of the worker is not declared: the token lacks the verb define, and the action has no document; jobs have the policies of their submissions, else hold", "action", name)
		}
		differs := &PolicyDiffers{Action: name}
		for _, d := range a.Differences {
			if d.Refuses {
				differs.Differences = append(differs.Differences, d)
			} else {
				log.Warn("flightd: the policy of the worker differs from the document of the action, which counts", "action", name, "field", d.Field, "own", d.Own, "document", d.Document)
			}
		}
		if len(differs.Differences) > 0 {
			return differs
		}
		h.policy = wire.ActionPolicy{} // declared
	}
	return nil
}
