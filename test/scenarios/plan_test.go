package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sluice-proxy/sluice/test/scenarios/list"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
)

var record = regexp.MustCompile(`\(ADR ([0-9]+)\)`)

// TestScenariosAreUnderstood: every scenario makes sense in every mode, applies to
// one at least, and names the record of what it does differently on purpose.
func TestScenariosAreUnderstood(t *testing.T) {
	all, err := list.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		applies := 0
		for _, mode := range play.Modes {
			plan, err := play.NewPlan(s, mode)
			if err != nil {
				t.Error(err)
				continue
			}
			if plan.Applies {
				applies++
			}
			for _, text := range plan.Differs {
				parts := record.FindStringSubmatch(text)
				if parts == nil {
					t.Errorf("%v differs without a record: %s", s, text)
					continue
				}
				found, err := filepath.Glob("../../docs/adr/" + pad(parts[1]) + "-*.md")
				if err != nil || len(found) != 1 {
					t.Errorf("%v: %s: %d records of that number, %v", s, text, len(found), err)
				}
			}
		}
		if applies == 0 {
			t.Errorf("%v applies to no mode", s)
		}
	}
}

func pad(number string) string {
	for len(number) < 4 {
		number = "0" + number
	}
	return number
}
