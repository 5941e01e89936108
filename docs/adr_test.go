package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateIndex = flag.Bool("update-index", false, "rewrite docs/adr/README.md")

const (
	indexOfRecords = "adr/README.md"
	recordWordsMax = 800
	indexHead      = "# Decision records\n\n" +
		"Each record states one decision, the reasons, and the alternatives. Newer records can supersede parts of older ones.\nNumbers that are missing were reserved and not used.\n\n" +
		"| | Decision | Status |\n| --: | --- | --- |\n"
)

var recordHead = regexp.MustCompile(`(?s)^# (\d+)\. ([^\n]+)\n\nStatus: (.*?)\n\nDate: \d{4}-\d\d-\d\d\n`)

// TestRecordsHaveTheirForm checks that each decision record has a title, a status and a date, that it has at
// most 800 words, and that the index lists it.
func TestRecordsHaveTheirForm(t *testing.T) {
	files, err := filepath.Glob("adr/[0-9]*.md")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d records, %v", len(files), err)
	}
	index := indexHead
	for _, file := range files {
		text := read(t, file)
		head := recordHead.FindStringSubmatch(text)
		if head == nil {
			t.Errorf("%s: does not begin with a numbered title, a status and a date", file)
			continue
		}
		if words := len(strings.Fields(text)); words > recordWordsMax {
			t.Errorf("%s: %d words, more than %d", file, words, recordWordsMax)
		}
		status := strings.TrimSuffix(strings.Join(strings.Fields(head[3]), " "), ".")
		index += fmt.Sprintf("| %s | [%s](%s) | %s |\n", head[1], head[2], filepath.Base(file), status)
	}
	if *updateIndex {
		if err := os.WriteFile(indexOfRecords, []byte(index), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, indexOfRecords) != index {
		t.Errorf("%s does not match the records: go test ./docs -run Records -update-index", indexOfRecords)
	}
}
