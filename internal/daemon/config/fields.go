// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// field is one field of a configuration struct under its JSON name.
type field struct {
	name string
	// path is the name with those of the sections around it: "iptables.masqueradeBit".
	path  string
	index []int
	typ   reflect.Type
	tag   reflect.StructTag
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
			all = append(all, field{name, name, f.Index, f.Type, f.Tag})
		}
	}
	return all
}

// opaque reports whether a type decodes its own JSON, so that its content has no path.
func opaque(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// leavesOf returns all fields below a struct type that hold a value themselves, in order. Lists and maps count as one.
func leavesOf(t reflect.Type) (leaves []field) {
	for _, f := range fieldsOf(t) {
		if f.typ.Kind() != reflect.Struct || opaque(f.typ) {
			leaves = append(leaves, f)
			continue
		}
		for _, inner := range leavesOf(f.typ) {
			inner.path = f.name + "." + inner.path
			leaves = append(leaves, inner)
		}
	}
	return leaves
}

// pathsOf returns the paths of leavesOf.
func pathsOf(t reflect.Type) (paths []string) {
	for _, f := range leavesOf(t) {
		paths = append(paths, f.path)
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
