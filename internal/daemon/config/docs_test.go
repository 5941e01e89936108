package config

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestDocs: the page for users names every flag and every field, in the table of
// its document, and says what a change of the field comes to.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(text), "\n## KubeProxyConfiguration\n")
	kubeProxy, own, _ := strings.Cut(tables, "\n## SluiceConfiguration\n")
	f, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	f.set.VisitAll(func(flag *pflag.Flag) {
		word := "`--" + flag.Name
		if len(flag.Name) == 1 {
			word = "`-" + flag.Name
		}
		if !strings.Contains(string(text), word+"`") {
			t.Errorf("flag --%s is missing", flag.Name)
		}
	})
	for _, field := range allFields() {
		path, second := strings.CutPrefix(field, sluicePrefix)
		if path == "apiVersion" || path == "kind" {
			continue
		}
		part := kubeProxy
		if second {
			part = own
		}
		row := rowOf(part, path)
		if row == "" {
			t.Errorf("field %s is missing", field)
			continue
		}
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if change := cells[len(cells)-1]; !strings.HasPrefix(change, changeText(effects[field])) {
			t.Errorf("%s: a change is said to come to %q, want %q", field, change, changeText(effects[field]))
		}
	}
}

// rowOf gives the row of a table that starts with a field, or with several.
func rowOf(text, path string) string {
	for line := range strings.Lines(text) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if strings.HasPrefix(line, "| `") && strings.Contains(first, "`"+path+"`") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func changeText(e effect) string {
	switch e.Effect {
	case NoEffect:
		return "none"
	case NextStart:
		return "next start"
	case HandOver:
		return "hand-over"
	default:
		return "in place"
	}
}
