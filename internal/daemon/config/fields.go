package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

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
