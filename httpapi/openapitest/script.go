package openapitest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Script is a sequence of requests, each with its expected answer.
//
//	### a title
//	> POST /v1/flights:open
//	> Flightd-Namespace: billing
//	{"action":"charge","id":"order-42"}
//	< 201
//	< Flightd-Flight-Id: <flight>
//	{"decision":"proceed","flight_id":"<flight>","...":"..."}
//
// <name> is a placeholder for text; as a whole JSON string it is a placeholder for any value. Its first occurrence in
// an answer binds it. Later answers must have the same text, and requests send it. <> matches anything. An object with
// "...":"..." may have more members. An answer may have other headers than the script. If the script has no body, the
// answer may have any body. An event stream is read until each line of the script was found, in order, and then closed.
type Script struct {
	Title string
	Steps []Step
}

// Step is one request and its expected answer.
type Step struct {
	Line         int // in the file
	Method       string
	Target       string // path and query
	Header       http.Header
	Body         string
	Status       int
	AnswerHeader http.Header // expected headers of the answer
	Answer       string      // expected body
}

// Parse parses the scripts of a file. Lines that start with // are comments.
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
			err = errors.New("line before the first title")
		case strings.HasPrefix(line, "> "):
			step, err = script.addRequestLine(step, i+1, line[2:])
		case step == nil:
			err = errors.New("line before the first request")
		case strings.HasPrefix(line, "< "):
			err = step.addAnswerLine(line[2:])
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

// addRequestLine parses a line of a request: a method and path, or a header.
func (s *Script) addRequestLine(step *Step, line int, text string) (*Step, error) {
	if step != nil && step.Status == 0 {
		return step, addHeader(step.Header, text)
	}
	method, target, found := strings.Cut(text, " ")
	if !found {
		return step, errors.New("expected a method and a path")
	}
	s.Steps = append(s.Steps, Step{Line: line, Method: method, Target: target, Header: http.Header{}, AnswerHeader: http.Header{}})
	return &s.Steps[len(s.Steps)-1], nil
}

// addAnswerLine parses a line of an answer: a status, or a header.
func (s *Step) addAnswerLine(text string) (err error) {
	if s.Status != 0 {
		return addHeader(s.AnswerHeader, text)
	}
	s.Status, err = strconv.Atoi(text)
	return err
}

func addHeader(h http.Header, text string) error {
	name, value, found := strings.Cut(text, ": ")
	if !found {
		return errors.New("expected a header name and value")
	}
	h.Add(name, value)
	return nil
}
