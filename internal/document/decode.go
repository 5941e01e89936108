package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"

	strictjson "sigs.k8s.io/json"
)

// MistypedMax bounds the values of a wrong type that are found in one document: each takes some further decodings.
const MistypedMax = 20

// Decode decodes a document into a struct. It leaves out values of a wrong type, so that every mistake is found; the
// mistakes are in the order of their lines. Whole is false if the document cannot be decoded even so: then there are
// more mistakes than those.
func (d *Document) Decode(into any) (mistakes []Mistake, whole bool) {
	if d.resolve(); d.err != nil {
		return []Mistake{*d.err}, false
	}
	mistakes = slices.Clone(d.repeated)
	for found := 0; !whole && found < MistypedMax; {
		odd, err := d.decode(into, math.MaxInt)
		if err == nil {
			whole = true
			mistakes = append(mistakes, odd...)
			continue
		}
		at, err := d.culprit(into)
		at.out = true
		if at.json != "null" { // in YAML, a field without a value
			mistakes = append(mistakes, mistyped(at, err))
			found++
		}
	}
	slices.SortStableFunc(mistakes, func(a, b Mistake) int { return a.Line - b.Line })
	return mistakes, whole
}

// decode decodes the first values of a document, and finds unknown fields.
func (d *Document) decode(into any, values int) (odd []Mistake, err error) {
	reflect.ValueOf(into).Elem().SetZero()
	unknown, err := strictjson.UnmarshalStrict(d.root.appendTo(nil, &values), into)
	for _, one := range unknown {
		if field, ok := errors.AsType[strictjson.FieldError](one); ok {
			path := field.FieldPath()
			odd = append(odd, Mistake{Line: d.Line(path), Path: path, Message: "unknown field", Kind: Unknown})
		}
	}
	return odd, err
}

// culprit returns the first value that cannot be decoded, and why. The errors of the decoder do not tell, if a type has
// its own: but any number of values before that one can be decoded.
func (d *Document) culprit(into any) (*value, error) {
	values := d.root.appendValues(nil)
	first := sort.Search(len(values)-1, func(i int) bool {
		_, err := d.decode(into, i+1)
		return err != nil
	})
	_, err := d.decode(into, first+1)
	return values[first], err
}

func mistyped(at *value, err error) Mistake {
	want := fmt.Sprint(err)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want = "want " + wants(wrong.Type)
	}
	all := math.MaxInt
	text := string(at.appendTo(nil, &all))
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
