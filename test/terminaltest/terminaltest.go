// SPDX-License-Identifier: Apache-2.0

// Package terminaltest fills answers with text that would move a terminal's cursor or forge rows, and checks what
// commands print of them.
package terminaltest

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// Hostile has ESC, BEL, CR, LF, TAB, DEL, a control character of C1 and a character that reverses the direction of text.
const Hostile = "x\x1b]52;c;eA\a\x1b[2J\r\nforged row\t\x7f\u009b2J\u202ey"

// depthMax bounds types that contain themselves.
const depthMax = 9

// Fill sets each field that an answer in JSON can set: strings and zones of addresses to text, lists and maps to one
// item, numbers to 1.
func Fill(answer any, text string) { fill(reflect.ValueOf(answer).Elem(), text, 0) }

func fill(v reflect.Value, text string, depth int) {
	if depth > depthMax || !v.CanSet() {
		return
	}
	zone := "eth0"
	if text == Hostile {
		zone = text
	}
	address := netip.MustParseAddr("fe80::1").WithZone(zone)
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Now()))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(address))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(address, 80)))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text, depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text, depth+1)
		fill(value, text, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), text, depth+1)
		}
	}
}

// Check fails unless all characters of an output print or end lines, and it has as many lines as that of a harmless
// answer, apart from the kernel's errors, whose lines are indented by four spaces.
func Check(t testing.TB, hostile, harmless string) {
	t.Helper()
	if !utf8.ValidString(hostile) {
		t.Errorf("not UTF-8: %q", hostile)
	}
	if at := strings.IndexFunc(hostile, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
		t.Errorf("a terminal would obey %q in %q", hostile[at:at+1], hostile)
	}
	if got, want := rows(hostile), rows(harmless); got != want {
		t.Errorf("%d lines, want %d:\n%s\nharmless:\n%s", got, want, hostile, harmless)
	}
}

func rows(text string) int { return strings.Count(text, "\n") - strings.Count(text, "\n    ") }
