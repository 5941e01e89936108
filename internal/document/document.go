// Package document reads the YAML and JSON files that people write: the configuration and manifests. It decodes them
// strictly, as the API machinery does, and names the line of each error.
//
//	file ─► Each ─► Document ─► Decode ─► struct, Mistakes
//	                    └─► Line          for checks of the values
//
// JSON values may follow one another. Merge keys are supported.
package document

import (
	"bytes"
	"encoding/json"
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
	// Unreadable is a syntax error, or a document that is too large.
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
	node    *yaml.Node
	line    int
	version Version
	// root is the document as it is decoded; nil until it is needed.
	root     *value
	repeated []Mistake
	err      *Mistake
}

// Each calls each with the documents of a file, one after another: the trees of a large file together take forty times
// its size. Documents that hold nothing but comments are left out.
func Each(data []byte, version Version, each func(*Document)) *Mistake {
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		data = separated(data)
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var file yaml.Node
		err := decoder.Decode(&file)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return syntaxError(err)
		case len(file.Content) == 1 && file.Content[0].ShortTag() != "!!null":
			each(&Document{node: file.Content[0], line: file.Content[0].Line, version: version})
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

// Text returns what a field holds if it is no list and has no fields; otherwise nothing.
func (d *Document) Text(path ...string) string {
	if node := child(d.node, path...); node.Kind == yaml.ScalarNode {
		return node.Value
	}
	return ""
}

// Items returns the elements of the list in a field, and whether it is a list. No field is an empty list.
func (d *Document) Items(key string) (items []*Document, isList bool) {
	list := child(d.node, key)
	for _, node := range list.Content {
		items = append(items, &Document{node: target(node), line: node.Line, version: d.version})
	}
	return items, list.Kind == yaml.SequenceNode || list.IsZero()
}

// child returns what a field holds; an empty node without it.
func child(node *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		inner := &yaml.Node{}
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				inner = target(node.Content[i+1])
			}
		}
		node = inner
	}
	return node
}

// target returns the node that an alias stands for.
func target(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// position matches the line in the errors of the parser, which have no type.
var position = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// parserError matches the errors of the parser of go.yaml.in/yaml/v3, as opposed to its scanner: it counts lines from 0
// (v3.0.6, parser.fail).
var parserError = regexp.MustCompile(`did not find expected (key|node content|'-' indicator|',' or|<)`)

func syntaxError(err error) *Mistake {
	match := position.FindStringSubmatch(err.Error())
	if match == nil {
		return &Mistake{Message: "not valid YAML: " + err.Error()}
	}
	line, _ := strconv.Atoi(match[1]) // digits or nothing, by the expression
	if match[1] != "" && parserError.MatchString(match[2]) {
		line++
	}
	return &Mistake{Line: max(line, 1), Message: "not valid YAML: " + match[2]}
}

// separated turns JSON values that follow one another into documents of YAML on the same lines. It returns other text
// as it is. A value on the line of another one moves to the next line.
func separated(data []byte) []byte {
	var documents []byte
	for decoder, start := json.NewDecoder(bytes.NewReader(data)), 0; ; start = int(decoder.InputOffset()) {
		var one json.RawMessage
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return documents
		} else if err != nil {
			return data
		}
		lines := bytes.Count(data[start:int(decoder.InputOffset())-len(one)], []byte("\n"))
		if start > 0 {
			lines = max(lines, 1)
		}
		documents = fmt.Appendf(documents, "%s--- %s", strings.Repeat("\n", lines), escapes.ReplaceAllFunc(one, unescape))
	}
}

// escapes matches what the parser of YAML does not understand, an escaped slash or character above U+FFFF, and escaped
// backslashes, which could be taken for the start of one.
var escapes = regexp.MustCompile(`\\\\|\\/|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)

func unescape(escaped []byte) []byte {
	var text string
	if escaped[1] == '\\' || json.Unmarshal(fmt.Appendf(nil, `"%s"`, escaped), &text) != nil {
		return escaped
	}
	return []byte(text)
}
