// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience decodes its own JSON, so that the decoder does not tell where it failed.
type patience time.Duration

func (p *patience) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	d, err := time.ParseDuration(s)
	*p = patience(d)
	return err
}

type inner struct {
	Name string              `json:"name"`
	Port int32               `json:"port"`
	Wait patience            `json:"wait"`
	On   bool                `json:"on"`
	Tags map[string]patience `json:"tags"`
}

type outer struct {
	inner `json:",inline"`
	List  []inner `json:"list"`
	One   *inner  `json:"one"`
}

// all reads the documents of a text.
func all(t *testing.T, text string) (documents []*Document) {
	t.Helper()
	if err := Each([]byte(text), func(d *Document) { documents = append(documents, d) }); err != nil {
		t.Fatalf("%q: %+v", text, err)
	}
	return documents
}

// decoded returns what a text means, and its mistakes.
func decoded(t *testing.T, text string, version Version) (o outer, mistakes string) {
	t.Helper()
	found, _ := all(t, text)[0].Decode(&o, version)
	return o, said(found)
}

func said(found []Mistake) string {
	var lines []string
	for _, m := range found {
		lines = append(lines, fmt.Sprintf("%d: %s: %s", m.Line, m.Path, m.Message))
	}
	return strings.Join(lines, "\n")
}

// TestDecode_EveryMistake: Decode reports errors of every kind, in the order of their lines, and decodes the valid
// fields.
func TestDecode_EveryMistake(t *testing.T) {
	o, mistakes := decoded(t, `name: 5
port: 80
wait: soon
list:
- {port: x, nmae: a}
- {wait: 1s, tags: {a: 1s, b: later}}
- 7
- {name: last}
one:
  wait: 5
  port: 1
  port: 2
  list: []
`, YAML12)
	want := `1: name: 5: must be text; quote it if it looks like a number
3: wait: "soon": time: invalid duration "soon"
5: list[0].port: "x": must be a whole number (32 bits)
5: list[0].nmae: unknown field
6: list[1].tags.b: "later": time: invalid duration "later"
7: list[2]: 7: must be fields with values
10: one.wait: 5: must be text; quote it if it looks like a number
12: one.port: already set on line 11
13: one.list: unknown field`
	if mistakes != want {
		t.Errorf("found\n%s\nwant\n%s", mistakes, want)
	}
	if o.Port != 80 || o.List[1].Wait != patience(time.Second) || o.List[3].Name != "last" || o.One.Port != 2 {
		t.Errorf("decoded %+v", o)
	}
}

// TestDecode_Meaning: valid YAML is decoded with its meaning: anchors, merge keys, null, tags and block text.
func TestDecode_Meaning(t *testing.T) {
	for text, want := range map[string]outer{
		"one: &a {port: 1, name: x}\nlist: [*a, {<<: *a, port: 2}, {name: y, <<: [{name: z}, *a], port: 3}]": {
			One: &inner{Port: 1, Name: "x"}, List: []inner{{Port: 1, Name: "x"}, {Port: 2, Name: "x"}, {Port: 3, Name: "y"}}},
		"name: null\nwait: null\none: null\nlist: [null]":                     {List: []inner{{}}},
		"name: 2024-05-01T10:00:00Z\nport: 0x1F\non: !!bool 'true'\ntags: {}": {inner: inner{Name: "2024-05-01T10:00:00Z", Port: 31, On: true, Tags: map[string]patience{}}},
		"name: !!binary aGk=":                           {inner: inner{Name: "hi"}},
		"name: |\n  a\n  b\n":                           {inner: inner{Name: "a\nb\n"}},
		`{"name": "\\ud83d\u00e9",` + "\n\t\"port\":1}": {inner: inner{Name: "\\ud83dé", Port: 1}},
	} {
		if o, mistakes := decoded(t, text, YAML12); mistakes != "" || !reflect.DeepEqual(o, want) {
			t.Errorf("%q: %+v, want %+v: %s", text, o, want, mistakes)
		}
	}
}

// TestDecode_YAMLVersions: words such as yes and off, which YAML 1.1 takes for booleans, are text in YAML 1.2, and with
// quotes.
func TestDecode_YAMLVersions(t *testing.T) {
	const text = "{on: yes, name: \"off\", one: {on: !!bool yes, name: !!str on}}"
	if o, mistakes := decoded(t, text, YAML11); mistakes != "" || !o.On || o.Name != "off" || !o.One.On || o.One.Name != "on" {
		t.Errorf("%+v: %s", o, mistakes)
	}
	if _, mistakes := decoded(t, "on: yes\nname: n", YAML12); mistakes != `1: on: "yes": must be true or false` {
		t.Error(mistakes)
	}
	if o, mistakes := decoded(t, "name: off\none: {name: Yes}", YAML12); mistakes != "" || o.Name != "off" || o.One.Name != "Yes" {
		t.Errorf("where text is wanted: %+v: %s", o, mistakes)
	}
	if _, mistakes := decoded(t, "name: false\nport: off", YAML11); mistakes != "1: name: false: must be text; quote it if it looks like a number\n2: port: false: must be a whole number (32 bits)" {
		t.Error(mistakes)
	}
}

func TestLine(t *testing.T) {
	d := all(t, "a: &a\n  b: [1, {c: 2}]\n  x.y/z: 1\nd: *a\ne:\n  f: 3\n")[0]
	for path, line := range map[string]int{"": 1, "a": 1, "a.b[0]": 2, "a.b[1].c": 2, "a.b[7].c": 2, "a.x.y/z": 3, "a[b]": 1,
		"d": 4, "d.b[1]": 2, "e.f": 6, "e.x.y": 5, "x": 1} {
		if got := d.Line(path); got != line {
			t.Errorf("%q is on line %d, want %d", path, got, line)
		}
	}
}

// TestEach: documents are returned one after the other, each with its line, until an error.
func TestEach(t *testing.T) {
	for text, want := range map[string]string{
		"# nothing\n---\na: 1\n---\n---\nb: [\n": "3 a, line 7: not valid YAML: did not find expected node content",
		"a: b: c\n":                              "line 1: not valid YAML: mapping values are not allowed in this context",
		"\n\na: b: c\n":                          "line 3: not valid YAML: mapping values are not allowed in this context",
		"a: 1\nb: {c: 1\n":                       "line 2: not valid YAML: did not find expected ',' or '}'",
		"a: 1\n\tb: 2\n":                         "line 2: not valid YAML: found a tab character that violates indentation",
		"a: *b\n":                                "line 1: not valid YAML: unknown anchor 'b' referenced",
		"{\"a\":1}\n{\"b\":\n2}\n":               "1 a, line 2: not valid YAML: did not find expected <document start>",
		"{\"a\": 1}\n---\n{b: 2}":                "1 a, 3 b, ",
	} {
		var got string
		if err := Each([]byte(text), func(d *Document) {
			for key, line := range d.Fields() {
				got += fmt.Sprintf("%d %s, ", line, key)
			}
		}); err != nil {
			got += fmt.Sprintf("line %d: %s", err.Line, err.Message)
		}
		if got != want {
			t.Errorf("%q:\n%s, want\n%s", text, got, want)
		}
	}
}

// TestDecode_ExpansionBounded: a short text whose aliases or merge keys expand without end is rejected.
func TestDecode_ExpansionBounded(t *testing.T) {
	for name, form := range map[string]string{"aliases": "x%d: &x%d [%s]\n", "merge keys": "x%d: &x%d {<<: [%s]}\n"} {
		bomb := "x0: &x0 {a: aaaaaaaaaa}\n"
		for i := 1; i < 90; i++ {
			bomb += fmt.Sprintf(form, i, i, strings.Join(slices.Repeat([]string{fmt.Sprintf("*x%d", i-1)}, 10), ", "))
		}
		if _, mistakes := decoded(t, bomb, YAML12); !strings.Contains(mistakes, "excessive aliasing") || strings.Contains(mistakes, "\n") {
			t.Errorf("%s: %.200s", name, mistakes)
		}
	}
	for _, cycle := range []string{"a: &a [*a]\n", "a: &a {<<: *a}\n"} {
		if _, mistakes := decoded(t, cycle, YAML12); !strings.Contains(mistakes, "contains itself") {
			t.Errorf("%s: %s", cycle, mistakes)
		}
	}
	found, whole := all(t, "list:\n"+strings.Repeat("- port: x\n", 1000))[0].Decode(&outer{}, YAML12)
	if len(found) != MistypedMax || whole {
		t.Errorf("%d mistakes, whole %t", len(found), whole)
	}
}
