// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"
)

// Change is one difference between two configurations.
type Change struct {
	// Field is the path of the field. Paths in Sluice's document start with "SluiceConfiguration.".
	Field string
	// Old and New are the values as a file would have them; empty if not set.
	Old, New string
}

// Compare returns the differences between two configurations, in document order. There is none if
// both have the same effect.
func Compare(old, new *Config) (changes []Change) {
	add := func(prefix string, a, b any) {
		from, to := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
		for _, path := range pathsOf(from.Type()) {
			was, is := valueText(at(from, path)), valueText(at(to, path))
			if was != is {
				changes = append(changes, Change{Field: prefix + path, Old: was, New: is})
			}
		}
	}
	add("", old.document(), new.document())
	add(sluicePrefix, &old.Sluice, &new.Sluice)
	return changes
}

// valueText returns a value as a file would have it. Equal values have equal texts, but
// may differ themselves: a Quantity remembers how it was written.
func valueText(v reflect.Value) string {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic("config: a configuration can always be written: " + err.Error())
	}
	if string(text) == "null" {
		return ""
	}
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		return plain
	}
	return string(text)
}
