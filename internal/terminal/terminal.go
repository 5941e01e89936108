// SPDX-License-Identifier: Apache-2.0

// Package terminal makes foreign text safe for terminals. Tenants write the fields of API objects, and nodes write the
// answers that kubectl sluice prints. Escape sequences in such text could change what a reader sees or copies, and new
// lines could forge rows. The package also contains the page and the table that commands print to.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Text returns a text with escapes, such as \x1b, for all characters that do not print. A text without such characters
// is returned as it is.
func Text(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var made strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if unprintable(r) || r == utf8.RuneError && size == 1 {
			quoted := strconv.Quote(text[:size])
			made.WriteString(quoted[1 : len(quoted)-1])
		} else {
			made.WriteString(text[:size])
		}
		text = text[size:]
	}
	return made.String()
}

// Lines is Text for a text that may have several lines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Text(lines[i])
	}
	return strings.Join(lines, "\n")
}

// JSON returns a text in JSON with escapes for characters in its strings that do not print. The value is the same.
func JSON(text []byte) []byte {
	if Printable(text) {
		return text
	}
	made := make([]byte, 0, len(text)+16)
	for _, r := range string(text) {
		switch {
		case isSpace(r) || !unprintable(r):
			made = utf8.AppendRune(made, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			made = fmt.Appendf(made, `\u%04x\u%04x`, high, low)
		default:
			made = fmt.Appendf(made, `\u%04x`, r)
		}
	}
	return made
}

// forbidden matches characters that JSON has as they are, but YAML allows only as escapes or reads as ends of lines.
var forbidden = regexp.MustCompile(`[\x7f-\x9f\x{feff}\x{fffe}\x{ffff}]`)

// YAML returns an object as YAML. It encodes the object as JSON, and the library parses that JSON as YAML.
func YAML(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(forbidden.ReplaceAllFunc(text, func(found []byte) []byte {
		r, _ := utf8.DecodeRune(found)
		return fmt.Appendf(nil, `\u%04x`, r)
	}))
}

// isSpace reports whether a character is white space between values of JSON; in strings, it has an escape.
func isSpace(r rune) bool { return r == '\n' || r == '\t' }

// Printable reports whether all characters of a text print or are white space.
func Printable(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return !isSpace(r) && unprintable(r) })
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// linesTag marks a field whose text may have several lines. Code that prints such a text joins or indents its lines.
const linesTag = "lines"

// Clean escapes all texts of an answer in place, before it is printed for people: strings, keys of maps, and zones of
// addresses. A field with the tag `terminal:"lines"` keeps its line breaks.
func Clean(answer any) { walk(reflect.ValueOf(answer), Text) }

func walk(v reflect.Value, escape func(string) string) {
	switch v.Kind() {
	case reflect.Pointer:
		walk(v.Elem(), Text)
	case reflect.Interface:
		if made, ok := copied(v.Elem()); ok && v.CanSet() {
			v.Set(made)
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(escape(v.String()))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			walk(v.Index(i), escape)
		}
	case reflect.Map:
		walkMap(v)
	case reflect.Struct:
		walkStruct(v)
	}
}

func walkStruct(v reflect.Value) {
	if v.CanSet() && walkAddress(v) {
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() && !field.Anonymous {
			continue
		}
		escape := Text
		if field.Tag.Get("terminal") == linesTag {
			escape = Lines
		}
		walk(v.Field(i), escape)
	}
}

// walkAddress cleans an address, whose zone is free text. It reports whether it was one.
func walkAddress(v reflect.Value) bool {
	clean := func(a netip.Addr) netip.Addr { return a.WithZone(Text(a.Zone())) }
	switch a := v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(clean(a)))
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(clean(a.Addr()), a.Port())))
	default:
		return false
	}
	return true
}

func walkMap(v reflect.Value) {
	for _, key := range v.MapKeys() {
		value, _ := copied(v.MapIndex(key))
		made, _ := copied(key)
		v.SetMapIndex(key, reflect.Value{})
		v.SetMapIndex(made, value)
	}
}

// copied returns a cleaned copy of a value that cannot be set in place, such as one in a map or an interface.
func copied(v reflect.Value) (made reflect.Value, ok bool) {
	if !v.IsValid() {
		return v, false
	}
	made = reflect.New(v.Type()).Elem()
	made.Set(v)
	walk(made, Text)
	return made, true
}
