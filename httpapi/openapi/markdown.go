package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// JSON returns the document, indented.
func (d *Document) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(d, "", "  ")
	return append(data, '\n'), err
}

// markdownPage is a buffer for Markdown.
type markdownPage struct{ bytes.Buffer }

func (p *markdownPage) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table writes a table. Line feeds and bars in a cell are escaped.
func (p *markdownPage) table(head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.line("| %s |", strings.Join(head, " | "))
	p.line("|%s", strings.Repeat(" --- |", len(head)))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(strings.ReplaceAll(cell, "\n", " "), "|", `\|`)
		}
		p.line("| %s |", strings.Join(row, " | "))
	}
	p.line("")
}

// Markdown returns the document as a page for people.
func (d *Document) Markdown() []byte {
	p := &markdownPage{}
	p.line("# HTTP API\n")
	p.line("<!-- Generated from the code by `make docs`. Do not edit. -->\n")
	p.line("%s\n", d.Info.Description)
	p.line("Every answer has the headers `X-Request-Id` and `Cache-Control: no-store`, and `Flightd-Ledger-Time` unless a node of a cluster that does not lead answers from its own ledger; `Age` says how many seconds old such an answer is, from one second on. A question mark marks an optional header. " +
		"Every request may have these headers:\n")
	var rows [][]string
	for _, name := range commonRequestHeaders() {
		h, _ := d.Components.Parameters.Get(name)
		rows = append(rows, []string{"`" + name + "`", h.Description})
	}
	p.table([]string{"header", "meaning"}, rows)
	p.line("The same reference as OpenAPI 3.1: [openapi.json](openapi.json), and `GET /openapi.json` on every server.\n")
	for _, tag := range d.Tags {
		p.line("## %s%s\n", strings.ToUpper(tag.Name[:1]), tag.Name[1:])
		p.line("%s\n", tag.About)
		for _, path := range d.Paths {
			for _, o := range path.Value {
				if o.Value.Tags[0] == tag.Name {
					d.writeOperation(p, path.Name, strings.ToUpper(o.Name), o.Value)
				}
			}
		}
	}
	d.writeObjects(p)
	d.writeCodes(p)
	return p.Bytes()
}

func (d *Document) writeOperation(p *markdownPage, path, method string, o *pathOperation) {
	p.line("### %s `%s`\n", method, path)
	p.line("%s\n", strings.TrimSpace(o.Summary+". "+o.Description))
	p.line("%s\n", tokenText(o))
	var rows [][]string
	for _, q := range o.Parameters {
		if q.Ref != "" {
			if q, _ = d.Components.Parameters.Get(strings.TrimPrefix(q.Ref, parameterPath)); slices.Contains(commonRequestHeaders(), q.Name) {
				continue
			}
		}
		rows = append(rows, []string{"`" + q.Name + "`", q.In, requiredText(q.Required), q.Description})
	}
	p.table([]string{"parameter", "in", "", "meaning"}, rows)
	if o.Body != nil {
		m := o.Body.Content[0].Value
		p.line("Body: %s. %sExample:\n", typeText(m.Schema), withTrailingSpace(o.Body.Description))
		p.line("```json\n%s\n```\n", m.Example)
	}
	d.writeResponses(p, o)
}

// tokenText says which token an operation needs.
func tokenText(o *pathOperation) string {
	var verbs []string
	for _, s := range o.Security {
		for _, verb := range s[tokenScheme] {
			verbs = append(verbs, "`"+verb+"`")
		}
	}
	switch {
	case len(o.Security) == 0:
		return "Token: none."
	case len(verbs) == 0:
		return "Token: any."
	}
	return "Token: with the verb " + strings.Join(verbs, " or ") + "."
}

func withTrailingSpace(s string) string {
	if s == "" {
		return ""
	}
	return s + " "
}

func (d *Document) writeResponses(p *markdownPage, o *pathOperation) {
	var rows [][]string
	var codes []string
	for _, r := range o.Responses {
		if name, shared := strings.CutPrefix(r.Value.Ref, responsePath); shared {
			for code := range strings.SplitSeq(name, ".") {
				codes = append(codes, "`"+code+"` "+r.Name)
			}
			continue
		}
		var bodies, headers []string
		for _, c := range r.Value.Content {
			bodies = append(bodies, contentText(c.Name, c.Value.Schema))
		}
		for _, h := range r.Value.Headers {
			if isCommonHeader(h.Name) {
				continue
			}
			word := "`" + h.Name + "`"
			if strings.HasSuffix(h.Value.Ref, optionalSuffix) {
				word += "?"
			}
			headers = append(headers, word)
		}
		rows = append(rows, []string{r.Name, r.Value.Description, strings.Join(bodies, ", "), strings.Join(headers, ", ")})
	}
	p.table([]string{"answer", "meaning", "body", "headers"}, rows)
	p.line("[Problems](#codes): %s.\n", strings.Join(codes, ", "))
}

func contentText(mediaType string, s *Schema) string {
	k := typeText(s)
	switch linked := strings.HasPrefix(k, "["); {
	case linked && strings.HasSuffix(mediaType, "json"):
		return k
	case linked:
		return "`" + mediaType + "` of " + k
	}
	return "`" + mediaType + "`"
}

// writeObjects writes all schemas.
func (d *Document) writeObjects(p *markdownPage) {
	p.line("## Objects\n")
	p.line("A field that is not marked `always` is absent if it is empty, zero or false.\n")
	for _, s := range d.Components.Schemas {
		p.line("### %s\n", s.Name)
		p.line("%s\n", s.Value.Description)
		needed := map[string]bool{}
		for _, name := range s.Value.Required {
			needed[name] = true
		}
		var rows [][]string
		for _, f := range s.Value.Properties {
			rows = append(rows, []string{"`" + f.Name + "`", typeText(f.Value), requiredText(needed[f.Name]), f.Value.Description + constraintText(f.Value)})
		}
		p.table([]string{"field", "type", "", "meaning"}, rows)
	}
}

// writeCodes writes the table of codes.
func (d *Document) writeCodes(p *markdownPage) {
	p.line("## Codes\n")
	p.line("`GET /problems/{code}` has the same text for each code, and an example.\n")
	var rows [][]string
	for _, c := range d.spec.Problems {
		again := "no"
		if c.Retryable {
			again = "yes"
		}
		rows = append(rows, []string{"`" + string(c.Code) + "`", fmt.Sprint(c.Status), again, c.Description, c.Hint})
	}
	p.table([]string{"code", "status", "retryable", "meaning", "what to do"}, rows)
}

func requiredText(needed bool) string {
	if needed {
		return "always"
	}
	return ""
}

// typeText names the type of a value; a documented object is a link.
func typeText(s *Schema) string {
	name, ref := strings.CutPrefix(s.Ref, schemaPath)
	switch {
	case ref:
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case len(s.AnyOf) > 0:
		kinds := make([]string, len(s.AnyOf))
		for i, k := range s.AnyOf {
			kinds[i] = typeText(k)
		}
		return strings.Join(kinds, " or ")
	case s.Type == "array":
		return "array of " + typeText(s.Items)
	case s.Encoding != "":
		return s.Encoding
	case s.Format != "":
		return s.Format
	case s.Type == "":
		return "any JSON"
	}
	return s.Type
}

// constraintText describes the limits of a field's values.
func constraintText(s *Schema) string {
	var out []string
	if len(s.Enum) > 0 {
		out = append(out, "one of `"+strings.Join(s.Enum, "`, `")+"`")
	}
	if s.Maximum != nil && s.Minimum != nil {
		out = append(out, fmt.Sprintf("from %d to %d", *s.Minimum, *s.Maximum))
	}
	if s.MaxLength > 0 {
		out = append(out, fmt.Sprintf("at most %d bytes", s.MaxLength))
	}
	if s.MaxItems > 0 {
		out = append(out, fmt.Sprintf("at most %d", s.MaxItems))
	}
	if s.Default != nil {
		out = append(out, fmt.Sprintf("by default %v", s.Default))
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, "; ") + ")"
}
