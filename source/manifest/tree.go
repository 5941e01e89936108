package manifest

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineError is a syntax error at a line of a file.
type lineError struct {
	line    int
	message string
}

func (e *lineError) Error() string { return e.message }

// documents parses a file into one tree per document. Documents that hold
// nothing but comments are left out. JSON is told by its first character, since
// YAML proper would not allow tabs in it.
func documents(data []byte) ([]*yaml.Node, error) {
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		return jsonDocuments(data)
	}
	return yamlDocuments(data)
}

func yamlDocuments(data []byte) ([]*yaml.Node, error) {
	var roots []*yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, yamlError(err)
		}
		if len(document.Content) == 1 && document.Content[0].ShortTag() != "!!null" {
			roots = append(roots, document.Content[0])
		}
	}
}

// yamlLine matches the position in the error texts of go.yaml.in/yaml/v3, which
// has no typed one.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// parserError matches the errors of the library's parser, as opposed to its
// scanner: it counts their lines from 0 (go.yaml.in/yaml v3.0.6, parser.fail).
var parserError = regexp.MustCompile(`did not find expected (key|node content|'-' indicator|',' or|<)`)

func yamlError(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	match := yamlLine.FindStringSubmatch(text)
	if match == nil {
		return &lineError{message: text}
	}
	line, _ := strconv.Atoi(match[1]) // digits or empty, by the expression
	if parserError.MatchString(match[2]) {
		line++
	}
	return &lineError{line: line, message: "not valid YAML: " + match[2]}
}

// child gives the value of a key of a mapping, nil without one.
func child(node *yaml.Node, key string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// text gives the value of a key that holds a scalar, or an empty string.
func text(node *yaml.Node, key string) string {
	value := child(node, key)
	if value == nil || value.Kind != yaml.ScalarNode {
		return ""
	}
	return value.Value
}
