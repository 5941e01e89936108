package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	strictjson "sigs.k8s.io/json"
)

// MistypedMax bounds the values of a wrong type that are found in one document: each takes some further decodings.
const MistypedMax = 20

// Decode decodes a document into a struct. It leaves out values of a wrong type, so that every error is found; the
// errors are in the order of their lines. Whole is false if the document cannot be decoded even so: then there are
// more errors than those.
func (d *Document) Decode(into any) (mistakes []Mistake, whole bool) {
	if d.resolve(); d.err != nil {
		return []Mistake{*d.err}, false
	}
	mistakes = slices.Clone(d.repeated)
	words := 0
	for found := 0; !whole && found < MistypedMax; {
		unknown, err := d.decode(into, 0, d.root.end)
		if err != nil {
			at, err := d.culprit(into)
			if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && at.word != "" && wrong.Type.Kind() == reflect.String && words < MistypedMax {
				at.json, at.word = string(quoted(at.word)), "" // such as off, where text is wanted
				words++
				continue
			}
			at.out = true
			if at.json != "null" { // in YAML, a field without a value
				mistakes = append(mistakes, mistyped(at, err))
				found++
			}
			continue
		}
		whole = true
		for _, one := range unknown {
			if field, ok := errors.AsType[strictjson.FieldError](one); ok {
				path := field.FieldPath()
				mistakes = append(mistakes, Mistake{Line: d.Line(path), Path: path, Message: "unknown field", Kind: Unknown})
			}
		}
	}
	slices.SortStableFunc(mistakes, func(a, b Mistake) int { return a.Line - b.Line })
	return mistakes, whole
}

// decode decodes some values of a document, and those around them.
func (d *Document) decode(into any, from, to int) (unknown []error, err error) {
	reflect.ValueOf(into).Elem().SetZero()
	return strictjson.UnmarshalStrict(d.root.appendTo(nil, from, to), into)
}

// culprit returns the first value that cannot be decoded, and why. The errors of the decoder do not tell which it is if a
// type decodes its own JSON; but the values before it can be decoded alone.
func (d *Document) culprit(into any) (*value, error) {
	from, to := 0, d.root.end
	for to-from > 1 {
		middle := (from + to) / 2
		if _, err := d.decode(into, from, middle); err != nil {
			to = middle
		} else {
			from = middle
		}
	}
	_, err := d.decode(into, from, to)
	return d.root.at(from), err
}

func mistyped(at *value, err error) Mistake {
	want := fmt.Sprint(err)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want = "must be " + wants(wrong.Type)
	}
	text := string(at.appendTo(nil, at.number, at.end))
	return Mistake{Line: at.line, Path: at.path(), Value: text, Message: text + ": " + want, Kind: Mistyped}
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
