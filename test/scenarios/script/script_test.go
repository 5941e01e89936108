// SPDX-License-Identifier: Apache-2.0

package script

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse("f", `# a comment
S-CIP-01 the first  # not a comment
    endpoints a b   # a comment
	p1 -> cluster => a b \
	   as client

S-CIP-02b the second
    service ranges=" 203.0.113.0/25 " x="" #
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Scenario{
		{ID: "S-CIP-01", Title: "the first  # not a comment", File: "f", Number: 2, Lines: []Line{
			{[]string{"endpoints", "a", "b"}, "endpoints a b   # a comment", 3},
			{[]string{"p1", "->", "cluster", "=>", "a", "b", "as", "client"}, "p1 -> cluster => a b as client", 4},
		}},
		{ID: "S-CIP-02b", Title: "the second", File: "f", Number: 7, Lines: []Line{
			{[]string{"service", "ranges= 203.0.113.0/25 ", "x="}, `service ranges=" 203.0.113.0/25 " x="" #`, 8},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestParse_ErrorNamesPlace: an error of Parse names the file and the line.
func TestParse_ErrorNamesPlace(t *testing.T) {
	for text, want := range map[string]string{
		"endpoints a":                  `f:1: "endpoints a": want a heading`,
		"  endpoints a":                "f:1: a statement before the first heading",
		"S-CIP-01 t\n\n  service x=\"": "f:3: service x=\": a quote is not closed",
	} {
		if _, err := Parse("f", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %s…", text, err, want)
		}
	}
}

// TestParse_For: one scenario with several names becomes one scenario per name.
func TestParse_For(t *testing.T) {
	got, err := Parse("f", "S-BES-01 $it: obeyed\n  for docker ufw\n  others $it\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Scenario{
		{ID: "S-BES-01-docker", Title: "docker: obeyed", File: "f", Number: 1, Lines: []Line{{[]string{"others", "docker"}, "others docker", 3}}},
		{ID: "S-BES-01-ufw", Title: "ufw: obeyed", File: "f", Number: 1, Lines: []Line{{[]string{"others", "ufw"}, "others ufw", 3}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
