// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	// conventionalName is the unit under test and the condition, which is no sentence.
	conventionalName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*(_[A-Z0-9][A-Za-z0-9]*)?$`)
	sentence         = regexp.MustCompile(`^Test(A[A-Z][a-z]|An[A-Z]|The[A-Z])`)
)

// TestSources_Conventions checks that each Go file names its license in the first line, and each test its unit and the
// condition.
func TestSources_Conventions(t *testing.T) {
	files := tracked(t, ".go")
	if len(files) < 1000 {
		t.Fatalf("%d files: the search for them is broken", len(files))
	}
	for _, file := range files {
		text := read(t, file)
		if !strings.HasPrefix(text, "// SPDX-License-Identifier: Apache-2.0\n\n") {
			t.Errorf("%s: does not begin with the line // SPDX-License-Identifier: Apache-2.0 and an empty line", file)
		}
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range testName.FindAllStringSubmatch(text, -1) {
			if name := match[1]; !conventionalName.MatchString(name) || sentence.MatchString(name) {
				t.Errorf("%s: %s: name it TestUnit_Condition; the sentence is the comment", file, name)
			}
		}
	}
}
