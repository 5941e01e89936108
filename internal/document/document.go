// SPDX-License-Identifier: Apache-2.0

// Package document reads the YAML and JSON files that people write: the configuration and manifests. The strict decoder
// of the API machinery decodes them; this package adds the lines of errors, from the tree of YAML.
//
//	file ─► Each ─► Document ─► Decode ─► struct, Mistakes
//	                    └─► Line          for checks of the values
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mistake is an error at a place of a file.
type Mistake struct {
	// Line is counted from 1; 0 if it is not known.
	Line int
	// Path is the field, for example "spec.ports[0].port"; empty for the document.
	Path string
	// Value is the value as JSON if Kind is Mistyped.
	Value   string
	Message string
	Kind    Kind
}

// Kind says what a Mistake is about.
type Kind int

const (
	// Unreadable is a syntax error, or a document that JSON cannot express.
	Unreadable Kind = iota
	// Mistyped is a value that its field cannot have.
	Mistyped
	// Unknown is a field that does not exist.
	Unknown
	// Repeated is a key that is set again. The last one counts.
	Repeated
)

// Version is a version of YAML.
type Version int

const (
	// YAML12 takes a plain "yes" or "on" for text.
	YAML12 Version = iota
	// YAML11 takes it for true, as kube-proxy does.
	YAML11
)

// Document is one document of a file, or an item of a list in it.
type Document struct {
	node *yaml.Node
	line int
}

// Each calls each with the documents of a file, one after another, because the trees of a large file together take
// forty times its size. It leaves out documents that contain only comments.
func Each(data []byte, each func(*Document)) *Mistake {
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var file yaml.Node
		err := decoder.Decode(&file)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return syntaxError(err)
		case len(file.Content) == 1 && file.Content[0].ShortTag() != "!!null":
			each(&Document{node: file.Content[0], line: file.Content[0].Line})
		}
	}
}

// IsObject reports whether a document has fields.
func (d *Document) IsObject() bool { return d.node.Kind == yaml.MappingNode }

// Start returns the line on which a document starts.
func (d *Document) Start() int { return d.line }

// Fields iterates over the names of the fields of a document, and their lines.
func (d *Document) Fields() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for i := 0; d.IsObject() && i < len(d.node.Content) && yield(d.node.Content[i].Value, d.node.Content[i].Line); i += 2 {
		}
	}
}

// Text returns the value of a field; "" if it is a list, has fields, or does not exist.
func (d *Document) Text(path ...string) string {
	node := d.node
	for _, key := range path {
		_, node, _ = find(node, "."+key)
	}
	if node == nil || node.Kind != yaml.ScalarNode {
		return ""
	}
	return node.Value
}

// Items returns the elements of the list in a field, and whether it is a list. A missing field is an empty list.
func (d *Document) Items(key string) (items []*Document, isList bool) {
	_, list, _ := find(d.node, "."+key)
	if list == nil {
		return nil, true
	}
	for _, node := range list.Content {
		items = append(items, &Document{node: target(node), line: node.Line})
	}
	return items, list.Kind == yaml.SequenceNode
}

// Line returns the line of a field of a document, or of the closest field around it.
func (d *Document) Line(path string) int {
	line, _ := d.locate(path)
	return line
}

// Has reports whether a document sets a field.
func (d *Document) Has(path string) bool {
	_, rest := d.locate(path)
	return rest == ""
}

// locate follows a path as far as it goes, and returns the line there and the rest of the path.
func (d *Document) locate(path string) (line int, rest string) {
	line, rest = d.line, "."+path
	for node := d.node; ; {
		at, value, after := find(node, rest)
		if at == nil {
			return line, rest
		}
		line, node, rest = at.Line, value, after
	}
}

// find takes the first step of a path: it returns the key or element, the value there, and the rest of the path. Names
// can contain dots, so the longest name that matches counts; of equal names, the last one counts.
func find(node *yaml.Node, path string) (at, value *yaml.Node, rest string) {
	longest := 0
	for i := 0; node != nil && i < len(node.Content); i++ {
		inner := node.Content[i]
		name := "." + inner.Value
		switch {
		case node.Kind == yaml.SequenceNode:
			name = Index("", i)
		case node.Kind != yaml.MappingNode || i%2 == 1:
			continue
		}
		after, within := strings.CutPrefix(path, name)
		if !within || len(name) < longest || after != "" && after[0] != '.' && after[0] != '[' {
			continue
		}
		longest, at, value, rest = len(name), inner, target(inner), after
		if node.Kind == yaml.MappingNode {
			value = target(node.Content[i+1])
		}
	}
	return at, value, rest
}

// target returns the node that an alias stands for.
func target(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// Index returns the path of an element of the list at a path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// position matches the line in the errors of the parser, which have no type.
var position = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)`)

// parserError matches the errors of the parser of go.yaml.in/yaml/v3, as opposed to its scanner: it counts lines from 0
// (v3.0.6, parser.fail).
var parserError = regexp.MustCompile(`did not find expected (key|node content|'-' indicator|',' or|<)`)

func syntaxError(err error) *Mistake {
	text := err.Error()
	if several, ok := errors.AsType[*yaml.TypeError](err); ok {
		text = several.Errors[0]
	}
	match := position.FindStringSubmatch(text)
	line, _ := strconv.Atoi(match[1]) // digits or nothing, by the expression
	if match[1] != "" && parserError.MatchString(match[2]) {
		line++
	}
	return &Mistake{Line: max(line, 1), Message: "not valid YAML: " + match[2]}
}
