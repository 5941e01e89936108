// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// required is a direct requirement in go.mod, with its purpose.
var required = regexp.MustCompile(`^\t(\S+) v\S+(?: // (.*))?$`)

// TestDependencies_Reference compares the table of dependencies.md with go.mod, where each direct requirement has
// its purpose in a comment.
func TestDependencies_Reference(t *testing.T) {
	var rows [][]string
	for line := range strings.Lines(read(t, "../go.mod")) {
		match := required.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match == nil || match[2] == "indirect" {
			continue
		}
		if match[2] == "" {
			t.Errorf("go.mod: %s has no comment that contains its purpose", match[1])
		}
		rows = append(rows, []string{"`" + match[1] + "`", match[2]})
	}
	if len(rows) < 20 {
		t.Fatalf("%d requirements: the search for them is broken", len(rows))
	}
	doctest.Generated(t, "dependencies.md", "requirements", doctest.Table([]string{"Module", "Used for"}, rows))
}
