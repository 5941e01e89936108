package document

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// sizeMax bounds the values of one document and their bytes, aliases expanded. An API server's store takes 1.5 MiB.
	sizeMax = 2 << 20
	// depthMax bounds the nesting of one document, aliases followed; the kinds here need ten levels.
	depthMax = 100
)

// value is one value of a document. Aliases and merge keys are resolved, and of a key that is set again the last one is
// there.
type value struct {
	// name is the key, with a dot, or the index, in brackets. The document itself has no parent and no name.
	parent *value
	name   string
	line   int
	// json is the value, or how the list or object of the inner values starts.
	json  string
	inner []*value
	// number counts the values in the order of the document, from 0; those within have the numbers up to end.
	number, end int
	// word is set if the value is a plain word that YAML 1.1 takes for true or false.
	word string
	// out means that the value is not decoded.
	out bool
}

func (v *value) path() string {
	if v.parent == nil {
		return ""
	}
	return strings.TrimPrefix(v.parent.path()+v.name, ".")
}

// Line returns the line of a field of a document, or of the closest field around it.
func (d *Document) Line(path string) int {
	d.resolve()
	v, rest := d.root, "."+path
	for i := 0; i < len(v.inner); i++ {
		inner, ok := strings.CutPrefix(rest, v.inner[i].name)
		if ok && (inner == "" || inner[0] == '.' || inner[0] == '[') {
			v, rest, i = v.inner[i], inner, -1
		}
	}
	return v.line
}

// at returns the value with a number.
func (v *value) at(number int) *value {
	for v.number != number {
		v = v.inner[slices.IndexFunc(v.inner, func(inner *value) bool { return inner.end > number })]
	}
	return v
}

// appendTo writes this value as JSON, with those of the inner values that have some of the numbers. What is left out keeps
// its place in a list.
func (v *value) appendTo(text []byte, from, to int) []byte {
	text = append(text, v.json...)
	start := len(text)
	for _, inner := range v.inner {
		switch {
		case inner.end <= from || inner.number >= to || inner.out && v.json == "{":
			continue
		case len(text) > start:
			text = append(text, ',')
		}
		if v.json == "{" {
			text = append(append(text, quoted(inner.name[1:])...), ':')
		}
		if inner.out {
			text = append(text, "null"...)
			continue
		}
		text = inner.appendTo(text, from, to)
	}
	switch v.json {
	case "{":
		text = append(text, '}')
	case "[":
		text = append(text, ']')
	}
	return text
}

// resolve makes values of the tree of YAML.
func (d *Document) resolve() {
	if d.root == nil {
		d.root = &value{line: d.line}
		r := resolver{Document: d}
		r.fill(d.root, d.node, 0)
	}
}

type resolver struct {
	*Document
	size, count int
}

func (r *resolver) fail(v *value, line int, format string, arguments ...any) {
	if r.err == nil {
		r.err = &Mistake{Line: line, Path: v.path(), Message: fmt.Sprintf(format, arguments...)}
	}
}

// enter counts a node, and reports whether to go on.
func (r *resolver) enter(v *value, node *yaml.Node, depth int) bool {
	if r.size += 1 + len(node.Value); r.size > sizeMax || depth > depthMax {
		r.fail(v, v.line, "larger than %d bytes or nested more than %d levels deep", sizeMax, depthMax)
	}
	return r.err == nil
}

func (r *resolver) fill(v *value, node *yaml.Node, depth int) {
	node = target(node)
	v.number = r.count
	r.count++
	defer func() { v.end = r.count }()
	if !r.enter(v, node, depth) {
		return
	}
	switch node.Kind {
	case yaml.MappingNode:
		v.json = "{"
		for _, p := range r.pairs(v, node, depth) {
			v.add(r, "."+p.key.Value, p.key.Line, p.value, depth)
		}
	case yaml.SequenceNode:
		v.json = "["
		for i, element := range node.Content {
			v.add(r, fmt.Sprintf("[%d]", i), element.Line, element, depth)
		}
	default:
		v.json = r.scalar(v, node)
	}
}

func (v *value) add(r *resolver, name string, line int, node *yaml.Node, depth int) {
	inner := &value{parent: v, name: name, line: line}
	v.inner = append(v.inner, inner)
	r.fill(inner, node, depth+1)
}

type pair struct {
	key, value *yaml.Node
	merged     bool
}

// pairs returns the keys and values of an object. As for kube-proxy and kubectl, a merge key (<<) counts where it stands:
// it overrides what is set before.
func (r *resolver) pairs(v *value, node *yaml.Node, depth int) (all []pair) {
	if node.Kind != yaml.MappingNode {
		r.fail(v, node.Line, "a merge key (<<) needs fields with values")
	}
	at := make(map[string]int, len(node.Content)/2)
	set := func(p pair) {
		name := p.key.Value
		first, known := at[name]
		if !known {
			at[name] = len(all)
			all = append(all, p)
			return
		}
		if !p.merged && !all[first].merged {
			r.repeated = append(r.repeated, Mistake{Line: p.key.Line, Path: (&value{parent: v, name: "." + name}).path(),
				Message: fmt.Sprintf("already set on line %d", all[first].key.Line), Kind: Repeated})
		}
		all[first] = p
	}
	for i := 0; r.enter(v, node, depth) && i+1 < len(node.Content); i += 2 {
		p := pair{key: node.Content[i], value: target(node.Content[i+1])}
		r.size += len(p.key.Value)
		switch {
		case p.key.Kind != yaml.ScalarNode:
			r.fail(v, p.key.Line, "a key must be a plain text")
		case p.key.ShortTag() != "!!merge":
			set(p)
		default:
			others := []*yaml.Node{p.value}
			if p.value.Kind == yaml.SequenceNode {
				others = p.value.Content
			}
			for _, other := range slices.Backward(others) { // the first one counts
				for _, merged := range r.pairs(v, target(other), depth+1) {
					set(pair{merged.key, merged.value, true})
				}
			}
		}
	}
	return all
}

// oldTruth matches the plain words that are true or false in YAML 1.1, and text in YAML 1.2.
var oldTruth = regexp.MustCompile(`^(?:(y|Y|yes|Yes|YES|on|On|ON)|n|N|no|No|NO|off|Off|OFF)$`)

// scalar returns a value without inner ones as JSON.
func (r *resolver) scalar(v *value, node *yaml.Node) string {
	tag, old := node.ShortTag(), oldTruth.FindStringSubmatch(node.Value)
	switch {
	case old != nil && r.version == YAML11 && (tag == "!!str" && node.Style == 0 || tag == "!!bool"):
		if tag == "!!str" {
			v.word = node.Value
		}
		return strconv.FormatBool(old[1] != "")
	case !slices.Contains([]string{"!!int", "!!float", "!!bool", "!!null", "!!binary"}, tag):
		return string(quoted(node.Value)) // a timestamp without quotes is text as well
	}
	var plain any
	if err := node.Decode(&plain); err != nil {
		r.fail(v, node.Line, "%q is not a valid value", node.Value)
		return "null"
	}
	written, err := json.Marshal(plain)
	if err != nil {
		r.fail(v, node.Line, "%q cannot be expressed in JSON", node.Value)
	}
	return string(written)
}

func quoted(text string) []byte {
	written, err := json.Marshal(text)
	if err != nil {
		panic("document: a string is always valid JSON: " + err.Error())
	}
	return written
}

// Index returns the path of an element of the list at a path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
