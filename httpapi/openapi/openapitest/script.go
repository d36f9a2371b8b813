package openapitest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Script is a conversation with a server, as data: requests, each with what it must be answered.
//
//	### a title
//	> POST /v1/flights:open
//	> Flightd-Namespace: billing
//	{"action":"charge","id":"order-42"}
//	< 201
//	< Flight-Id: <flight>
//	{"decision":"proceed","flight_id":"<flight>","...":"..."}
//
// <name> stands for a text, or as a whole JSON string for any value: where it is first met in an answer it is learned,
// afterwards it must be the same, and requests send it. <> is anything. An object with "...":"..." may have more
// members. Headers that are not named may be there; an answer of which no body is written may have any. Of a stream of
// events each line is looked for among those that come, and then it is left.
type Script struct {
	Title string
	Steps []Step
}

// Step is one request and what it must be answered.
type Step struct {
	Line    int // of the file
	Method  string
	Target  string // path and query
	Header  http.Header
	Body    string
	Status  int
	Headers http.Header // of the answer
	Answer  string      // its body
}

// Parse reads the scripts of a file. Lines that start with // are for people.
func Parse(text string) (scripts []Script, err error) {
	var step *Step
	for i, line := range strings.Split(text, "\n") {
		var script *Script
		if len(scripts) > 0 {
			script = &scripts[len(scripts)-1]
		}
		title, isTitle := strings.CutPrefix(line, "### ")
		switch {
		case isTitle:
			scripts, step = append(scripts, Script{Title: title}), nil
		case strings.HasPrefix(line, "//"), strings.TrimSpace(line) == "":
		case script == nil:
			err = errors.New("this stands before the first title")
		case strings.HasPrefix(line, "> "):
			step, err = script.ask(step, i+1, line[2:])
		case step == nil:
			err = errors.New("this belongs to no request")
		case strings.HasPrefix(line, "< "):
			err = step.expect(line[2:])
		case step.Status == 0:
			step.Body += line + "\n"
		default:
			step.Answer += line + "\n"
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %s", i+1, err, line)
		}
	}
	return scripts, nil
}

// ask reads a line of a request: its first one, or a header.
func (s *Script) ask(step *Step, line int, text string) (*Step, error) {
	if step != nil && step.Status == 0 {
		return step, addHeader(step.Header, text)
	}
	method, target, found := strings.Cut(text, " ")
	if !found {
		return step, errors.New("a request starts with a method and a path")
	}
	s.Steps = append(s.Steps, Step{Line: line, Method: method, Target: target, Header: http.Header{}, Headers: http.Header{}})
	return &s.Steps[len(s.Steps)-1], nil
}

// expect reads a line of an answer: its status, or a header.
func (s *Step) expect(text string) (err error) {
	if s.Status != 0 {
		return addHeader(s.Headers, text)
	}
	s.Status, err = strconv.Atoi(text)
	return err
}

func addHeader(h http.Header, text string) error {
	name, value, found := strings.Cut(text, ": ")
	if !found {
		return errors.New("a header has a name and a value")
	}
	h.Add(name, value)
	return nil
}
