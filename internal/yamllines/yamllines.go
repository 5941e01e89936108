// Package yamllines tells where the fields of a YAML or JSON document stand in its file,
// so that an error can name the line. The readers of the configuration and of manifests
// use it; each decodes values in its own way, and this package keeps no state.
package yamllines

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is a syntax error at a line of a file; 0 if the line is not known.
type Error struct {
	Line    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// position matches the position in the error texts of the YAML libraries, which have no
// typed one.
var position = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: (?:line (\d+): )?(.*)$`)

// parserError matches the errors of the parser of go.yaml.in/yaml/v3, as opposed to its
// scanner: it counts lines from 0 (v3.0.6, parser.fail).
var parserError = regexp.MustCompile(`did not find expected (key|node content|'-' indicator|',' or|<)`)

// FromYAML converts an error of sigs.k8s.io/yaml. First is the line of the file on which
// the parsed text starts.
func FromYAML(err error, first int) *Error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	match := position.FindStringSubmatch(text)
	if match == nil {
		return &Error{Message: "not valid YAML: " + text}
	}
	line, _ := strconv.Atoi(match[1]) // digits or nothing, by the expression
	return &Error{Line: max(line, 1) + first - 1, Message: "not valid YAML: " + match[2]}
}

// FromYAML3 converts an error of go.yaml.in/yaml/v3 about a whole file.
func FromYAML3(err error) *Error {
	e := FromYAML(err, 1)
	if parserError.MatchString(e.Message) && strings.Contains(err.Error(), "line ") {
		e.Line++
	}
	return e
}

// Lines has the line of each field of a document by its path, for example
// "spec.ports[0].port". The path of the document itself is empty.
type Lines map[string]int

// Of returns the line of a field, or of the closest field around it that has one; 0
// if none has.
func (l Lines) Of(path string) int {
	for {
		line, ok := l[path]
		if ok || path == "" {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// Duplicate is a key that is set again after First.
type Duplicate struct {
	Path        string
	First, Line int
}

// Locate records the lines of a value and of everything in it; offset is added to the
// lines of the nodes. The caller has rejected aliases that contain themselves or expand
// without bound.
func (l Lines) Locate(root *yaml.Node, offset int) []Duplicate {
	return l.locate(root, "", root.Line+offset, offset)
}

func (l Lines) locate(node *yaml.Node, path string, line, offset int) (twice []Duplicate) {
	l[path] = line
	switch node.Kind {
	case yaml.AliasNode:
		return l.locate(node.Alias, path, line, offset)
	case yaml.SequenceNode:
		for i, element := range node.Content {
			twice = append(twice, l.locate(element, Index(path, i), element.Line+offset, offset)...)
		}
	case yaml.MappingNode:
		seen := map[string]int{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			inner, at := Join(path, key.Value), key.Line+offset
			if first, known := seen[key.Value]; known {
				twice = append(twice, Duplicate{inner, first, at})
			}
			seen[key.Value] = at
			twice = append(twice, l.locate(node.Content[i+1], inner, at, offset)...)
		}
	}
	return twice
}

// Join returns the path of a key in the field at a path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Index returns the path of an element of the list at a path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
