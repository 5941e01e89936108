// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"reflect"
	"testing"
)

func TestSections(t *testing.T) {
	got, err := Sections(page(t, "# Page\n~~~sh\n# no heading\none\n~~~\n## Empty\n~~~console\n$ two\n~~~\n### Last\n~~~sh\nthree\n~~~\ntext\n~~~sh\nfour\n~~~\n"))
	want := []Section{{"Page", []string{"# no heading\none\n"}}, {"Last", []string{"three\n", "four\n"}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}
