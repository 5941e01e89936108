// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/scenarios/list"
	"github.com/sluice-proxy/sluice/test/scenarios/play"
)

var record = regexp.MustCompile(`\bADR ([0-9]+)\b`)

// TestScenarios_Understood: every scenario can be parsed in every mode, applies to at least one, and names the decision
// record of each deviation. A scenario that does not run in userspace mode is about another mode alone, or contains the
// reason.
func TestScenarios_Understood(t *testing.T) {
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
			} else if mode == "userspace" && plan.Cannot == "" && len(plan.Modes) != 1 && !strings.HasPrefix(s.ID, "S-US-") {
				t.Errorf("%v is not played in mode userspace, without a reason", s)
			}
			for _, text := range plan.Differs {
				records := record.FindAllStringSubmatch(text, -1)
				if len(records) == 0 {
					t.Errorf("%v differs without a record: %s", s, text)
				}
				for _, r := range records {
					found, err := filepath.Glob("../../docs/adr/" + pad(r[1]) + "-*.md")
					if err != nil || len(found) != 1 {
						t.Errorf("%v: %s: %d records of number %s, %v", s, text, len(found), r[1], err)
					}
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
