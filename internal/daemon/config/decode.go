package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kjson "sigs.k8s.io/json"

	"github.com/sluice-proxy/sluice/internal/yamllines"
)

// decode decodes a document into a struct. A value of a wrong type is a mistake and leaves
// its field as it was; decoding goes on, so that every mistake is reported. Odd are unknown
// fields and keys that are set twice.
func (d *document) decode(into any) (found findings, odd []oddity) {
	r := reader{document: reflect.TypeOf(into).Elem()}
	r.value(d.json, reflect.ValueOf(into).Elem(), "")
	for _, t := range d.twice {
		odd = append(odd, oddity{t.Path, fmt.Sprintf("already set on line %d", t.First), "; the last one counts"})
	}
	return r.found, append(odd, r.unknown...)
}

// oddity is a field that is unknown or set twice. It is a mistake in Sluice's document. In
// kube-proxy's it is a warning, because kube-proxy accepts it with a log line, so that files of
// older and newer releases work.
type oddity struct {
	field, message string
	// unless says what happens where it is accepted.
	unless string
}

// reader walks a document and the struct that it is decoded into.
type reader struct {
	found   findings
	unknown []oddity
	// document is the type of the whole document.
	document reflect.Type
}

// value decodes one value. As in encoding/json, null changes nothing.
func (r *reader) value(raw json.RawMessage, to reflect.Value, path string) {
	switch t := to.Type(); {
	case string(raw) == "null":
	case t.Kind() == reflect.Pointer:
		before := len(r.found)
		target := reflect.New(t.Elem())
		r.value(raw, target.Elem(), path)
		if len(r.found) == before {
			to.Set(target)
		}
	case opaque(t):
		r.leaf(raw, to, path)
	case t.Kind() == reflect.Struct:
		r.object(raw, to, path)
	case t.Kind() == reflect.Slice:
		r.list(raw, to, path)
	case t.Kind() == reflect.Map:
		r.members(raw, to, path)
	default:
		r.leaf(raw, to, path)
	}
}

func (r *reader) object(raw json.RawMessage, to reflect.Value, path string) {
	var members map[string]json.RawMessage
	if !r.container(raw, &members, "fields with values", path) {
		return
	}
	fields := fieldsOf(to.Type())
	for _, name := range slices.Sorted(maps.Keys(members)) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			at := yamllines.Join(path, name)
			r.unknown = append(r.unknown, oddity{at, "unknown field" + likely(name, at, fields, r.document), "; it is ignored"})
			continue
		}
		r.value(members[name], to.FieldByIndex(fields[i].index), yamllines.Join(path, name))
	}
}

func (r *reader) list(raw json.RawMessage, to reflect.Value, path string) {
	var elements []json.RawMessage
	if !r.container(raw, &elements, "a list", path) {
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(elements), len(elements)))
	for i, one := range elements {
		r.value(one, to.Index(i), yamllines.Index(path, i))
	}
}

func (r *reader) members(raw json.RawMessage, to reflect.Value, path string) {
	var members map[string]json.RawMessage
	if !r.container(raw, &members, "fields with values", path) {
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := reflect.New(to.Type().Elem()).Elem()
		r.value(members[name], value, yamllines.Join(path, name))
		to.SetMapIndex(reflect.ValueOf(name), value)
	}
}

func (r *reader) container(raw json.RawMessage, into any, want, path string) bool {
	if err := json.Unmarshal(raw, into); err != nil {
		r.wrong(path, raw, want)
		return false
	}
	return true
}

func (r *reader) leaf(raw json.RawMessage, to reflect.Value, path string) {
	value := reflect.New(to.Type())
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, value.Interface()); err != nil {
		r.wrong(path, raw, wants(to.Type()))
		return
	}
	to.Set(value.Elem())
}

func (r *reader) wrong(path string, raw json.RawMessage, want string) {
	r.found = append(r.found, finding{path, string(raw) + ": want " + want})
}

// wants describes the values of a type.
func wants(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return "a duration like 30s, 5m or 1h30m"
	case reflect.TypeFor[resource.QuantityValue]():
		return "a size like 512, 64Ki or 2Mi"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32:
		return "a whole number (32 bits)"
	case reflect.Uint32:
		return "a whole number from 0 to 2147483647"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "text; quote it if it looks like a number"
	}
}

// field is one field of a configuration struct under its JSON name.
type field struct {
	name  string
	index []int
	typ   reflect.Type
}

// fieldsOf returns the fields of a struct type in order, with the fields of embedded
// structs in place.
func fieldsOf(t reflect.Type) (all []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = append(all, inner)
			}
		case name != "" && name != "-":
			all = append(all, field{name, f.Index, f.Type})
		}
	}
	return all
}

// opaque reports whether a type decodes its own JSON, so that its content has no path.
func opaque(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// leavesOf returns the paths of all fields below a struct type that hold a value
// themselves, in order: "iptables.masqueradeBit". Lists and maps count as one.
func leavesOf(t reflect.Type) (paths []string) {
	for _, f := range fieldsOf(t) {
		if f.typ.Kind() != reflect.Struct || opaque(f.typ) {
			paths = append(paths, f.name)
			continue
		}
		for _, inner := range leavesOf(f.typ) {
			paths = append(paths, f.name+"."+inner)
		}
	}
	return paths
}

// at returns the field of a struct at a path of leavesOf.
func at(v reflect.Value, path string) reflect.Value {
	for name := range strings.SplitSeq(path, ".") {
		fields := fieldsOf(v.Type())
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			panic("config: no field " + path + " in " + v.Type().String())
		}
		v = v.FieldByIndex(fields[i].index)
	}
	return v
}
