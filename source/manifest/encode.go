package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
	json []byte
	// marks are in the order of their offsets.
	marks []mark
	lines map[string]int
}

// mark says that the value of a field starts at an offset in the JSON.
type mark struct {
	offset int
	path   string
}

// encode writes a tree as JSON. Scalars get the types that YAML 1.2 gives them,
// so that "no" and "on" are strings.
func encode(root *yaml.Node) (*encoding, error) {
	e := &encoding{lines: make(map[string]int)}
	if err := e.value(root, "", root.Line, 0); err != nil {
		return nil, err
	}
	return e, nil
}

// line finds the line of a field, or of the closest one around it.
func (e *encoding) line(path string) int {
	for {
		if line, ok := e.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}

// pathAt gives the field whose value was being read when a decoder stopped at
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
		return &lineError{line, fmt.Sprintf("larger than %d bytes or nested more than %d levels deep",
			objectBytesMax, depthMax)}
	}
	if node.Kind == yaml.AliasNode {
		return e.value(node.Alias, path, line, depth+1)
	}
	e.marks = append(e.marks, mark{len(e.json), path})
	e.lines[path] = line
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
			return &lineError{key.Line, "a key must be a plain text"}
		}
		if key.ShortTag() == "!!merge" {
			return &lineError{key.Line, "merge keys (<<) are not supported; write the fields out"}
		}
		if first, twice := seen[key.Value]; twice {
			return &lineError{key.Line, fmt.Sprintf("key %q is already set on line %d", key.Value, first)}
		}
		seen[key.Value] = key.Line
		if i > 0 {
			e.json = append(e.json, ',')
		}
		e.text(key.Value)
		e.json = append(e.json, ':')
		if err := e.value(node.Content[i+1], join(path, key.Value), key.Line, depth+1); err != nil {
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
		if err := e.value(element, fmt.Sprintf("%s[%d]", path, i), element.Line, depth+1); err != nil {
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
		return &lineError{node.Line, fmt.Sprintf("%q is not a valid value", node.Value)}
	}
	written, err := json.Marshal(value)
	if err != nil {
		return &lineError{node.Line, fmt.Sprintf("%q cannot be expressed in JSON", node.Value)}
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

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
