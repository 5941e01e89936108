package manifest

import (
	"testing"
)

// FuzzParse: whatever a file holds, it is either accepted whole or refused with
// a problem that names it, and reading it again gives the same.
func FuzzParse(f *testing.F) {
	f.Add(goodService + "---\n" + goodSlice)
	f.Add("apiVersion: v1\nkind: List\nitems: [&a {apiVersion: v1, kind: Node, metadata: {name: n}}, *a]\n")
	f.Add("{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {}}")
	f.Add("a: &a [*a]\nkind: *a\n? [x]\n: y\n")
	f.Fuzz(func(t *testing.T, text string) {
		objects, problems := parse("f.yaml", []byte(text))
		if len(objects) > 0 && len(problems) > 0 {
			t.Fatalf("%d objects in spite of %s", len(objects), problems[0])
		}
		for _, problem := range problems {
			if problem.File != "f.yaml" || problem.Message == "" || problem.Line < 0 {
				t.Fatalf("unusable problem %+v", problem)
			}
		}
		again, same := parse("f.yaml", []byte(text))
		if ids(again) != ids(objects) || len(same) != len(problems) {
			t.Fatal("reading twice gives two results")
		}
	})
}
