package httpapi_test

import "encoding/json"

// Document is an OpenAPI 3.1 document.
type Document struct {
	OpenAPI    string                   `json:"openapi"`
	Info       info                     `json:"info"`
	Servers    []server                 `json:"servers"`
	Security   []securityRequirement    `json:"security"`
	Tags       []Tag                    `json:"tags"`
	Paths      Map[Map[*pathOperation]] `json:"paths"`
	Components components               `json:"components"`
}

// JSON returns the document, indented.
func (d *Document) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(d, "", "  ")
	return append(data, '\n'), err
}

// securityRequirement names the verb that a token needs; several requirements are alternatives.
type securityRequirement map[string][]string

// tokenScheme is the name of the security scheme.
const tokenScheme = "token"

type securityScheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme"`
	Description string `json:"description"`
}

type info struct {
	Title       string  `json:"title"`
	Version     string  `json:"version"`
	Summary     string  `json:"summary"`
	Description string  `json:"description"`
	License     license `json:"license"`
}

type license struct {
	Name       string `json:"name"`
	Identifier string `json:"identifier"`
}

type server struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

type components struct {
	Schemas    Map[*Schema]    `json:"schemas"`
	Headers    Map[header]     `json:"headers"`
	Parameters Map[*parameter] `json:"parameters"`
	Responses  Map[*response]  `json:"responses"`
	Examples   Map[example]    `json:"examples"`
	// SecuritySchemes has the one scheme that servers with credentials use.
	SecuritySchemes map[string]securityScheme `json:"securitySchemes"`
}

type example struct {
	Ref     string          `json:"$ref,omitempty"`
	Summary string          `json:"summary,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
}

// pathOperation is an operation of the document.
type pathOperation struct {
	ID          string         `json:"operationId"`
	Tags        []string       `json:"tags"`
	Summary     string         `json:"summary"`
	Description string         `json:"description,omitempty"`
	Parameters  []*parameter   `json:"parameters,omitempty"`
	Body        *requestBody   `json:"requestBody,omitempty"`
	Responses   Map[*response] `json:"responses"`
	// Security replaces the document's requirement. An empty list: no token is needed.
	Security []securityRequirement `json:"security"`
}

type parameter struct {
	Ref         string  `json:"$ref,omitempty"`
	Name        string  `json:"name,omitempty"`
	In          string  `json:"in,omitempty"`
	Description string  `json:"description,omitempty"`
	Required    bool    `json:"required,omitempty"`
	Schema      *Schema `json:"schema,omitempty"`
	Example     string  `json:"example,omitempty"`
}

type requestBody struct {
	Description string     `json:"description,omitempty"`
	Required    bool       `json:"required"`
	Content     Map[media] `json:"content"`
}

type response struct {
	Ref         string          `json:"$ref,omitempty"`
	Description string          `json:"description,omitempty"`
	Headers     Map[*headerRef] `json:"headers,omitempty"`
	Content     Map[media]      `json:"content,omitempty"`
}

type headerRef struct {
	Ref string `json:"$ref"`
}

type media struct {
	Schema   *Schema         `json:"schema,omitempty"`
	Example  json.RawMessage `json:"example,omitempty"`
	Examples Map[example]    `json:"examples,omitempty"`
}
