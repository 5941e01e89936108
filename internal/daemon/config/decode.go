package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// decode reads a document into a struct. A value of a wrong type is a mistake and
// leaves its field as it was; the rest is read, so that all mistakes can be told
// at once. Fields that do not exist, and keys that are set twice, are warnings:
// kube-proxy accepts them with a line in its log, so that files of older and newer
// releases can be used.
func (d *document) decode(into any) (found findings, warnings []finding) {
	r := reader{}
	r.value(d.json, reflect.ValueOf(into).Elem(), "")
	return r.found, append(d.twice, r.unknown...)
}

// reader walks a document beside the struct that it is meant for.
type reader struct {
	found   findings
	unknown []finding
}

// value reads one value; null leaves things as they are, as in encoding/json.
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
			r.unknown = append(r.unknown, finding{join(path, name), "there is no such field" + likely(name, fields) + "; it is ignored"})
			continue
		}
		r.value(members[name], to.FieldByIndex(fields[i].index), join(path, name))
	}
}

func (r *reader) list(raw json.RawMessage, to reflect.Value, path string) {
	var elements []json.RawMessage
	if !r.container(raw, &elements, "a list", path) {
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(elements), len(elements)))
	for i, one := range elements {
		r.value(one, to.Index(i), element(path, i))
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
		r.value(members[name], value, join(path, name))
		to.SetMapIndex(reflect.ValueOf(name), value)
	}
}

// likely names the field that differs in case only.
func likely(name string, fields []field) string {
	for _, f := range fields {
		if strings.EqualFold(f.name, name) {
			return ", but " + f.name
		}
	}
	return ""
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

// wants says what a value of a type looks like.
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
		return "a whole number (of 32 bits)"
	case reflect.Uint32:
		return "a whole number from 0 to 2147483647"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a text; put it in quotes if it looks like a number"
	}
}
