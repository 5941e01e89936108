// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/internal/document"
)

// setDefaults fills in what a file omits.
func (s *SluiceConfiguration) setDefaults() {
	s.APIVersion, s.Kind = SluiceAPIVersion, SluiceKind
	table := reflect.ValueOf(s).Elem()
	for _, f := range leavesOf(table.Type()) {
		if value, text := at(table, f.path), f.tag.Get("default"); text != "" && value.IsZero() {
			if json.Unmarshal([]byte(text), value.Addr().Interface()) != nil && json.Unmarshal([]byte(strconv.Quote(text)), value.Addr().Interface()) != nil {
				panic("config: default of " + f.path)
			}
		}
	}
}

// copied returns a deep copy.
func copied[T any](original *T) (c T) {
	text, err := json.Marshal(original)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		panic("config: a configuration can always be written: " + err.Error())
	}
	return c
}

// checkTable checks each value by the tags of its field, and the elements of a list one by one. An empty text is no
// value, unless the field has a default.
func checkTable(s *SluiceConfiguration, found *findings) {
	table := reflect.ValueOf(s).Elem()
	for _, f := range leavesOf(table.Type()) {
		value, field := at(table, f.path), sluicePrefix+f.path
		if value.Kind() != reflect.Slice {
			if value.Kind() != reflect.String || !value.IsZero() || f.tag.Get("default") != "" {
				checkValue(f, field, value, found)
			}
			continue
		}
		for i := range value.Len() {
			checkValue(f, document.Index(field, i), value.Index(i), found)
		}
	}
}

func checkValue(f field, place string, value reflect.Value, found *findings) {
	plain := value.Interface()
	if d, ok := plain.(metav1.Duration); ok {
		plain = d.Duration
	}
	if allowed := f.tag.Get("oneof"); allowed != "" && !slices.Contains(strings.Split(allowed, ","), value.String()) {
		found.wrong(place, plain, "%s", choice(strings.Split(allowed, ",")))
	}
	if want := outside(f, plain); want != "" {
		found.wrong(place, plain, "%s", want)
	}
	if name := f.tag.Get("is"); name != "" {
		if p := predicates[name]; !p.holds(plain) {
			found.wrong(place, plain, "%s", p.want)
		}
	}
}

// choice writes words as "a, b or c".
func choice(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// outside returns the bounds of a number or a duration if it is outside.
func outside(f field, value any) string {
	low, high := f.tag.Get("min"), f.tag.Get("max")
	if low == "" || compare(value, low) >= 0 && (high == "" || compare(value, high) <= 0) {
		return ""
	}
	if high == "" {
		return low + " or more"
	}
	return low + " to " + high
}

// compare compares a number or a duration with a bound.
func compare(value any, bound string) int {
	if d, ok := value.(time.Duration); ok {
		limit, err := time.ParseDuration(bound)
		if err != nil {
			panic("config: " + err.Error())
		}
		return cmp.Compare(d, limit)
	}
	limit, err := strconv.ParseInt(bound, 10, 64)
	if err != nil {
		panic("config: " + err.Error())
	}
	return cmp.Compare(reflect.ValueOf(value).Int(), limit)
}

// predicate is a check of the tag "is".
type predicate struct {
	want  string
	holds func(value any) bool
}

// ofText makes a predicate of text.
func ofText(holds func(string) bool) func(any) bool {
	return func(value any) bool { return holds(fmt.Sprint(value)) }
}

var predicates = map[string]predicate{
	"address":   {wantAddress, ofText(isAddress)},
	"directory": {"an absolute path of a directory", ofText(filepath.IsAbs)},
	"file":      {"an absolute path of a PEM file", ofText(filepath.IsAbs)},
	"host":      {"a host name without a port, or * for all", ofText(isHost)},
	"positive":  {"more than 0", func(value any) bool { return compare(value, "0s") > 0 }},
	"range":     {wantRange, ofText(func(text string) bool { _, ok := parseRange(text); return ok })},
	"url":       {"a URL of a scheme and a host, like http://127.0.0.1:4318", ofText(isURL)},
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
}
