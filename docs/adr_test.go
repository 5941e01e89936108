// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// recordWordsMax and designWordsMax keep a record on one screen, and a design page readable in ten minutes.
const (
	recordWordsMax = 350
	designWordsMax = 900
)

var (
	recordHead = regexp.MustCompile(`(?s)^# (\d+)\. ([^\n]+)\n\nStatus: (.*?)\n\nDate: \d{4}-\d\d-\d\d\n`)
	// recordParts are the headings of a record, in order.
	recordParts = []string{"Context", "Decision", "Consequences", "Rejected"}
	// recordNamed is a reference to a record in a text. A line may break inside it.
	recordNamed = regexp.MustCompile(`\bADR\s+(?://\s*)?(\d+)\b|\badr/(\d{4})\b`)
)

// TestRecords_Reference checks that each decision record has a title, a status, a date and its four parts, that it is
// short, and that the index lists it.
func TestRecords_Reference(t *testing.T) {
	var rows [][]string
	for _, file := range records(t) {
		text := read(t, file)
		head := recordHead.FindStringSubmatch(text)
		if head == nil {
			t.Errorf("%s: does not begin with a numbered title, a status and a date", file)
			continue
		}
		var parts []string
		for _, part := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1) {
			parts = append(parts, part[1])
		}
		if strings.Join(parts, ", ") != strings.Join(recordParts, ", ") {
			t.Errorf("%s: has the parts %q, want %q", file, parts, recordParts)
		}
		short(t, file, recordWordsMax)
		status := strings.TrimSuffix(strings.Join(strings.Fields(head[3]), " "), ".")
		rows = append(rows, []string{head[1], fmt.Sprintf("[%s](%s)", head[2], filepath.Base(file)), status})
	}
	doctest.Generated(t, "adr/README.md", "records", doctest.Table([]string{"", "Decision", "Status"}, rows))
}

// TestDesignPages_Short checks the length of each design page. A page that grows needs less detail, not a second page.
func TestDesignPages_Short(t *testing.T) {
	pages, err := filepath.Glob("design/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d design pages, %v", len(pages), err)
	}
	for _, page := range pages {
		short(t, page, designWordsMax)
	}
}

// TestRecords_NamedOnesExist checks that each decision record that a page, a comment or a scenario names exists. The
// changelog, which describes the past, is not checked.
func TestRecords_NamedOnesExist(t *testing.T) {
	numbers := map[string]bool{}
	for _, file := range records(t) {
		numbers[strings.TrimLeft(filepath.Base(file)[:4], "0")] = true
	}
	named := 0
	for _, ending := range []string{".md", ".go", ".txt"} {
		for _, file := range tracked(t, ending) {
			if file == "../CHANGELOG.md" {
				continue
			}
			for _, match := range recordNamed.FindAllStringSubmatch(read(t, file), -1) {
				named++
				if number := strings.TrimLeft(match[1]+match[2], "0"); !numbers[number] {
					t.Errorf("%s: %q: there is no such record; name the one that holds now, or a design page", file, match[0])
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("%d references to records: the search for them is broken", named)
	}
}

func records(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("adr/[0-9]*.md")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d records, %v", len(files), err)
	}
	return files
}

func short(t *testing.T, file string, most int) {
	t.Helper()
	if words := len(strings.Fields(read(t, file))); words > most {
		t.Errorf("%s: %d words, more than %d", file, words, most)
	}
}
