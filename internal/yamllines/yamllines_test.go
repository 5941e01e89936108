package yamllines

import (
	"maps"
	"slices"
	"testing"

	yaml3 "go.yaml.in/yaml/v3"
	yaml1 "sigs.k8s.io/yaml"
)

const document = `a: &a
  b: [1, {c: 2}]
d: *a
d:
  e: 3
`

func TestLocate(t *testing.T) {
	var root yaml3.Node
	if err := yaml3.Unmarshal([]byte(document), &root); err != nil {
		t.Fatal(err)
	}
	lines := Lines{}
	twice := lines.Locate(root.Content[0], 10)
	want := Lines{"": 11, "a": 11, "a.b": 12, "a.b[0]": 12, "a.b[1]": 12, "a.b[1].c": 12,
		"d": 14, "d.b": 12, "d.b[0]": 12, "d.b[1]": 12, "d.b[1].c": 12, "d.e": 15}
	if !maps.Equal(lines, want) {
		t.Errorf("%v, want %v", lines, want)
	}
	if !slices.Equal(twice, []Duplicate{{"d", 13, 14}}) {
		t.Errorf("set twice: %v", twice)
	}
	for path, line := range map[string]int{"d.e": 15, "d.x.y": 14, "x": 11, "a.b[7].c": 12, "": 11} {
		if got := lines.Of(path); got != line {
			t.Errorf("%q is on line %d, want %d", path, got, line)
		}
	}
	if line := (Lines{}).Of("a.b"); line != 0 {
		t.Errorf("line %d of nothing", line)
	}
}

// TestErrors: both libraries count the lines of their errors, each in its own way.
func TestErrors(t *testing.T) {
	for text, want := range map[string]int{"a: b: c\n": 1, "\n\na: b: c\n": 3, "a: 1\nb: {c: 1\n": 2, "a: 1\n\tb: 2\n": 2} {
		var node yaml3.Node
		if e := FromYAML3(yaml3.Unmarshal([]byte(text), &node)); e.Line != want {
			t.Errorf("%q: line %d, want %d: %s", text, e.Line, want, e.Message)
		}
		if _, err := yaml1.YAMLToJSON([]byte(text)); FromYAML(err, 11).Line != want+10 {
			t.Errorf("%q: line %d, want %d: %v", text, FromYAML(err, 11).Line, want+10, err)
		}
	}
}
