package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
	yaml1 "sigs.k8s.io/yaml"
)

// document is one YAML or JSON document of a configuration file.
type document struct {
	// json is the document as kube-proxy reads it: YAML 1.1, where "yes" and
	// "on" are true.
	json []byte
	// lines is where each field stands, by path; "" is the document. It is
	// empty where only the parser of json can read the document.
	lines map[string]int
	// twice are the keys that are set more than once.
	twice []finding
}

// line gives the line of a field, or of the closest one around it that has one; 0
// when it is not known.
func (d *document) line(path string) int {
	for {
		line, ok := d.lines[path]
		if ok || path == "" {
			return line
		}
		path = path[:max(bytes.LastIndexAny([]byte(path), ".["), 0)]
	}
}

// syntaxError is text that cannot be parsed.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return e.message }

// parseDocuments reads the documents of a file; those that hold nothing but
// comments are left out.
func parseDocuments(data []byte) (documents []*document, err error) {
	for _, part := range splitDocuments(data) {
		encoded, err := yaml1.YAMLToJSON(part.text)
		if err != nil {
			return nil, syntaxErrorOf(err, part.line)
		}
		if string(encoded) == "null" {
			continue
		}
		d := &document{json: encoded, lines: map[string]int{}}
		var root yaml.Node
		if yaml.Unmarshal(part.text, &root) == nil && len(root.Content) == 1 {
			d.locate(root.Content[0], "", root.Content[0].Line+part.line-1, part.line-1)
		}
		documents = append(documents, d)
	}
	return documents, nil
}

// part is the text of one document, and the line of the file that it starts on.
type part struct {
	text []byte
	line int
}

// splitDocuments splits a file at the lines that start with three dashes.
func splitDocuments(data []byte) (parts []part) {
	current := part{line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		rest, separator := bytes.CutPrefix(text, []byte("---"))
		if separator && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			parts = append(parts, current)
			// What follows the dashes belongs to the new document.
			current = part{text: append([]byte("   "), rest...), line: line}
			continue
		}
		current.text = append(current.text, text...)
	}
	return append(parts, current)
}

// yamlLine matches the position in the error texts of the YAML parser, which has
// no typed one.
var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?`)

func syntaxErrorOf(err error, first int) error {
	text := err.Error()
	match := yamlLine.FindStringSubmatch(text)
	if match == nil || match[1] == "" {
		return &syntaxError{first, "not valid YAML: " + text[len(yamlLine.FindString(text)):]}
	}
	line, _ := strconv.Atoi(match[1]) // digits, by the expression
	return &syntaxError{line + first - 1, "not valid YAML: " + text[len(match[0]):]}
}

// locate remembers the lines of a value and of all that is in it. Offset is added
// to the lines of the nodes. The parser of json has refused aliases that lead to
// themselves or to too much.
func (d *document) locate(node *yaml.Node, path string, line, offset int) {
	d.lines[path] = line
	switch node.Kind {
	case yaml.AliasNode:
		d.locate(node.Alias, path, line, offset)
	case yaml.SequenceNode:
		for i, element := range node.Content {
			d.locate(element, fmt.Sprintf("%s[%d]", path, i), element.Line+offset, offset)
		}
	case yaml.MappingNode:
		seen := map[string]int{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			inner, at := join(path, key.Value), key.Line+offset
			if first, twice := seen[key.Value]; twice {
				d.twice = append(d.twice, finding{inner, fmt.Sprintf("is already set on line %d; the last one counts", first)})
			}
			seen[key.Value] = at
			d.locate(node.Content[i+1], inner, at, offset)
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
