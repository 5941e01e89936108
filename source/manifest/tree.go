package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-proxy/sluice/internal/yamllines"
)

// documents calls each with the tree of each document of a file, one after another: the trees of
// a large file together take forty times its size. Documents that hold nothing but comments are
// left out. JSON is told by its first character, since YAML proper would not allow tabs in it.
func documents(data []byte, each func(*yaml.Node)) error {
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) > 0 && start[0] == '{' {
		return jsonDocuments(data, each)
	}
	return yamlDocuments(data, each)
}

func yamlDocuments(data []byte, each func(*yaml.Node)) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return yamllines.FromYAML3(err)
		}
		if len(document.Content) == 1 && document.Content[0].ShortTag() != "!!null" {
			each(document.Content[0])
		}
	}
}

// child returns the value of a key of a mapping, nil without one.
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

// text returns the value of a key that holds a scalar, or an empty string.
func text(node *yaml.Node, key string) string {
	value := child(node, key)
	if value == nil || value.Kind != yaml.ScalarNode {
		return ""
	}
	return value.Value
}

// jsonReader builds the same trees from JSON as the YAML parser builds from
// YAML, with the line of every key and value.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	// line is that of offset, the position up to which lines were counted.
	line   int
	offset int
}

func jsonDocuments(data []byte, each func(*yaml.Node)) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	reader := &jsonReader{data: data, decoder: decoder, line: 1}
	for {
		root, err := reader.value(0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		each(root)
	}
}

// token reads one token and gives the line on which it ends; tokens of JSON do
// not span lines.
func (r *jsonReader) token() (json.Token, int, error) {
	token, err := r.decoder.Token()
	end := int(r.decoder.InputOffset())
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		end = min(int(syntax.Offset), len(r.data))
	}
	if end > r.offset {
		r.line += bytes.Count(r.data[r.offset:end], []byte("\n"))
		r.offset = end
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = &yamllines.Error{Line: r.line, Message: "not valid JSON: " + err.Error()}
	}
	return token, r.line, err
}

// value reads one value; depth is the number of containers around it.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, line, err := r.token()
	if err != nil {
		if depth > 0 && errors.Is(err, io.EOF) {
			err = &yamllines.Error{Line: line, Message: "not valid JSON: the file ends too early"}
		}
		return nil, err
	}
	if depth > depthMax {
		return nil, &yamllines.Error{Line: line, Message: fmt.Sprintf("nested more than %d levels deep", depthMax)}
	}
	switch token := token.(type) {
	case json.Delim:
		return r.container(token, line, depth)
	case string:
		return scalar("!!str", token, line), nil
	case json.Number:
		if _, err := strconv.ParseInt(token.String(), 10, 64); err == nil {
			return scalar("!!int", token.String(), line), nil
		}
		return scalar("!!float", token.String(), line), nil
	case bool:
		return scalar("!!bool", strconv.FormatBool(token), line), nil
	default:
		return scalar("!!null", "null", line), nil
	}
}

func (r *jsonReader) container(open json.Delim, line, depth int) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: line}
	if open == '{' {
		node.Kind, node.Tag = yaml.MappingNode, "!!map"
	}
	for r.decoder.More() {
		if node.Kind == yaml.MappingNode {
			key, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, key)
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, value)
	}
	if _, line, err := r.token(); errors.Is(err, io.EOF) {
		return nil, &yamllines.Error{Line: line, Message: "not valid JSON: the file ends too early"}
	} else if err != nil {
		return nil, err
	}
	return node, nil
}

func scalar(tag, value string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, Line: line}
}

const (
	// objectBytesMax bounds one object written as JSON, aliases expanded. An
	// API server's store takes 1.5 MiB.
	objectBytesMax = 2 << 20
	// depthMax bounds the nesting of one object, aliases followed; the kinds
	// here need ten levels.
	depthMax = 100
)

// encoding is one object as JSON, with the way back from a place in the JSON, or
// from the path of a field, to a line of the file.
type encoding struct {
	root *yaml.Node
	// omitted are the paths whose values are written as null.
	omitted map[string]bool

	json []byte
	// marks are in the order of their offsets.
	marks []mark
	lines yamllines.Lines
}

// mark says that the value of a field starts at an offset in the JSON.
type mark struct {
	offset int
	path   string
}

// encode writes a tree as JSON. Scalars get the types that YAML 1.2 gives them,
// so that "no" and "on" are strings.
func encode(root *yaml.Node) (*encoding, error) { return encodeWithout(root, nil) }

// without returns the encoding of the same object with null for the value of one more field, which
// decodes to the zero value of every type.
func (e *encoding) without(path string) (*encoding, error) {
	omitted := map[string]bool{path: true}
	maps.Copy(omitted, e.omitted)
	return encodeWithout(e.root, omitted)
}

func encodeWithout(root *yaml.Node, omitted map[string]bool) (*encoding, error) {
	e := &encoding{root: root, omitted: omitted, lines: yamllines.Lines{}}
	if err := e.value(root, "", root.Line, 0); err != nil {
		return nil, err
	}
	return e, nil
}

// pathAt returns the field whose value was being read when a decoder stopped at
// offset.
func (e *encoding) pathAt(offset int) string {
	after := sort.Search(len(e.marks), func(i int) bool { return e.marks[i].offset >= offset })
	if after == 0 {
		return ""
	}
	return e.marks[after-1].path
}

func (e *encoding) value(node *yaml.Node, path string, line, depth int) error {
	if depth > depthMax || len(e.json) > objectBytesMax {
		return &yamllines.Error{Line: line, Message: fmt.Sprintf("larger than %d bytes or nested more than %d levels deep",
			objectBytesMax, depthMax)}
	}
	if node.Kind == yaml.AliasNode {
		return e.value(node.Alias, path, line, depth+1)
	}
	e.marks = append(e.marks, mark{len(e.json), path})
	e.lines[path] = line
	if e.omitted[path] {
		e.json = append(e.json, "null"...)
		return nil
	}
	switch node.Kind {
	case yaml.MappingNode:
		return e.mapping(node, path, depth)
	case yaml.SequenceNode:
		return e.sequence(node, path, depth)
	default:
		return e.scalar(node)
	}
}

func (e *encoding) mapping(node *yaml.Node, path string, depth int) error {
	e.json = append(e.json, '{')
	seen := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind != yaml.ScalarNode {
			return &yamllines.Error{Line: key.Line, Message: "a key must be a plain text"}
		}
		if key.ShortTag() == "!!merge" {
			return &yamllines.Error{Line: key.Line, Message: "merge keys (<<) are not supported; write the fields out"}
		}
		if first, twice := seen[key.Value]; twice {
			return &yamllines.Error{Line: key.Line, Message: fmt.Sprintf("key %q is already set on line %d", key.Value, first)}
		}
		seen[key.Value] = key.Line
		if i > 0 {
			e.json = append(e.json, ',')
		}
		e.text(key.Value)
		e.json = append(e.json, ':')
		if err := e.value(node.Content[i+1], yamllines.Join(path, key.Value), key.Line, depth+1); err != nil {
			return err
		}
	}
	e.json = append(e.json, '}')
	return nil
}

func (e *encoding) sequence(node *yaml.Node, path string, depth int) error {
	e.json = append(e.json, '[')
	for i, element := range node.Content {
		if i > 0 {
			e.json = append(e.json, ',')
		}
		if err := e.value(element, yamllines.Index(path, i), element.Line, depth+1); err != nil {
			return err
		}
	}
	e.json = append(e.json, ']')
	return nil
}

// plainTags are the tags whose values are not text in JSON.
var plainTags = []string{"!!int", "!!float", "!!bool", "!!null"}

func (e *encoding) scalar(node *yaml.Node) error {
	if !slices.Contains(plainTags, node.ShortTag()) {
		e.text(node.Value) // a timestamp without quotes is text as well
		return nil
	}
	var value any
	if err := node.Decode(&value); err != nil {
		return &yamllines.Error{Line: node.Line, Message: fmt.Sprintf("%q is not a valid value", node.Value)}
	}
	written, err := json.Marshal(value)
	if err != nil {
		return &yamllines.Error{Line: node.Line, Message: fmt.Sprintf("%q cannot be expressed in JSON", node.Value)}
	}
	e.json = append(e.json, written...)
	return nil
}

func (e *encoding) text(value string) {
	written, err := json.Marshal(value)
	if err != nil {
		panic("manifest: a string is always valid JSON: " + err.Error())
	}
	e.json = append(e.json, written...)
}
