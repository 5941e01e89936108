// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	strictjson "sigs.k8s.io/json"
)

// MistypedMax bounds the values of a wrong type that are found in one document.
const MistypedMax = 20

// Decode decodes a document into a struct, over its values. It leaves out values of a wrong type, so that
// it finds every error; the errors are in the order of their lines. Whole is false if Decode cannot decode the
// document even so: then there are more errors than those.
func (d *Document) Decode(into any, version Version) (mistakes []Mistake, whole bool) {
	r := reader{Document: d, version: version, into: reflect.TypeOf(into).Elem()}
	if r.settle(d.node, ""); r.unreadable != nil {
		return []Mistake{*r.unreadable}, false
	}
	var tree any
	if err := d.node.Decode(&tree); err != nil {
		one := syntaxError(err)
		one.Line = max(one.Line, d.line)
		return []Mistake{*one}, false
	}
	written, err := json.Marshal(tree)
	if err != nil {
		return []Mistake{{Line: d.line, Message: "cannot be expressed in JSON: " + err.Error()}}, false
	}
	unknown, err := strictjson.UnmarshalStrict(written, into)
	if err != nil {
		r.check(tree, "", "", "")
		unknown, err = strictjson.UnmarshalStrict(text(tree), into)
	}
	for _, one := range unknown {
		if field, ok := errors.AsType[strictjson.FieldError](one); ok {
			r.add(Mistake{Path: field.FieldPath(), Message: "unknown field", Kind: Unknown})
		}
	}
	slices.SortStableFunc(r.found, func(a, b Mistake) int { return a.Line - b.Line })
	return r.found, err == nil
}

// reader reads one document.
type reader struct {
	*Document
	version Version
	into    reflect.Type
	found   []Mistake
	// mistyped counts the values of a wrong type.
	mistyped   int
	unreadable *Mistake
}

func (r *reader) add(m Mistake) {
	if m.Path = strings.TrimPrefix(m.Path, "."); m.Line == 0 {
		m.Line = r.Line(m.Path)
	}
	r.found = append(r.found, m)
}

// oldTruth matches the plain words that are true or false in YAML 1.1, and text in YAML 1.2.
var oldTruth = regexp.MustCompile(`^(?:(y|Y|yes|Yes|YES|on|On|ON)|n|N|no|No|NO|off|Off|OFF)$`)

// settle walks the tree of YAML once: it removes repeated keys, and decides which type a word has. It does not follow
// aliases, because their targets are in the tree as well.
func (r *reader) settle(node *yaml.Node, path string) {
	switch node.Kind {
	case yaml.MappingNode:
		node.Content = r.unique(node.Content, path)
		for i := 0; i < len(node.Content); i += 2 {
			r.settle(node.Content[i+1], path+"."+node.Content[i].Value)
		}
	case yaml.SequenceNode:
		for i, inner := range node.Content {
			r.settle(inner, Index(path, i))
		}
	case yaml.ScalarNode:
		tag, old := node.ShortTag(), oldTruth.FindStringSubmatch(node.Value)
		switch {
		case old != nil && (r.version == YAML11 && tag == "!!str" && node.Style == 0 || tag == "!!bool"):
			node.Tag, node.Value = "!!bool", fmt.Sprint(old[1] != "")
		case !slices.Contains([]string{"!!int", "!!float", "!!bool", "!!null", "!!binary"}, tag) || infinite(node):
			node.Tag = "!!str" // a timestamp without quotes is text as well
		}
	}
}

// infinite reports whether JSON cannot express a number.
func infinite(node *yaml.Node) bool {
	var number float64
	return node.ShortTag() == "!!float" && node.Decode(&number) == nil && (math.IsInf(number, 0) || math.IsNaN(number))
}

// unique returns the keys and values of an object. Of a repeated key, it keeps the last value. It makes all keys text.
func (r *reader) unique(pairs []*yaml.Node, path string) (kept []*yaml.Node) {
	at := make(map[string]int, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		key := pairs[i]
		first, again := at[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.unreadable = &Mistake{Line: key.Line, Path: strings.TrimPrefix(path, "."), Message: "a key must be a plain text"}
			return nil
		case again:
			r.add(Mistake{Line: key.Line, Path: path + "." + key.Value, Kind: Repeated,
				Message: fmt.Sprintf("already set on line %d", kept[first].Line)})
			key.Tag, kept[first], kept[first+1] = "!!str", key, pairs[i+1]
			continue
		case key.ShortTag() != "!!merge":
			key.Tag = "!!str"
		case target(pairs[i+1]).Kind == yaml.ScalarNode:
			r.unreadable = &Mistake{Line: key.Line, Path: strings.TrimPrefix(path, "."), Message: "a merge key (<<) needs fields with values"}
			return nil
		}
		at[key.Value] = len(kept)
		kept = append(kept, key, pairs[i+1])
	}
	return kept
}

// check removes values that the type cannot hold, and reports whether a value can stay. It decodes each value without
// its inner values, between start and end, the JSON of the lists and objects around it: types that decode their own
// JSON do not report which value an error is about.
func (r *reader) check(value any, path, start, end string) (stays bool) {
	if r.mistyped == MistypedMax {
		return true
	}
	alone := value
	switch value.(type) {
	case map[string]any:
		alone = map[string]any{}
	case []any:
		alone = []any{}
	}
	if _, err := strictjson.UnmarshalStrict([]byte(start+string(text(alone))+end), reflect.New(r.into).Interface()); err != nil {
		if value != nil { // nil is a field without a value in YAML
			r.mistyped++
			r.add(mistyped(path, string(text(value)), err))
		}
		return false
	}
	switch inner := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(inner)) {
			if !r.check(inner[key], path+"."+key, start+"{"+string(text(key))+":", "}"+end) {
				delete(inner, key)
			}
		}
	case []any:
		for i := range inner {
			if !r.check(inner[i], Index(path, i), start+"[", "]"+end) {
				inner[i] = nil
			}
		}
	}
	return true
}

func mistyped(path, value string, err error) Mistake {
	want := fmt.Sprint(err)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want = "must be " + wants(wrong.Type)
	}
	return Mistake{Path: path, Value: value, Message: value + ": " + want, Kind: Mistyped}
}

// text returns a value as JSON. This does not fail, because Decode has encoded the whole tree before.
func text(value any) []byte {
	written, _ := json.Marshal(value)
	return written
}

// wants describes the values of a type.
func wants(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int32:
		return "a whole number (32 bits)"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint32:
		return "a whole number from 0 to 2147483647"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "fields with values"
	default:
		return "text; quote it if it looks like a number"
	}
}
