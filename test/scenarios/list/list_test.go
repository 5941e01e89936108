// SPDX-License-Identifier: Apache-2.0

package list

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

// numbers is how many acceptance scenarios there are by subject; each subject is numbered from 1.
// Further ones of our own may follow.
var numbers = map[string]int{
	"CIP": 25, "NP": 21, "LB": 10, "EXT": 6, "SRC": 14, "ETP": 12, "ITP": 8, "TERM": 12, "TOPO": 11, "AFF": 10,
	"HC": 11, "IN": 17, "CT": 10, "SYNC": 16, "V": 12, "N": 8, "PROC": 22,
}

// TestAll_EveryScenario: the list contains all acceptance scenarios.
func TestAll_EveryScenario(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[string]bool)
	for _, s := range all {
		there[s.ID] = true
		if len(s.Lines) == 0 {
			t.Errorf("%v says nothing", s)
		}
	}
	total := 0
	for subject, n := range numbers {
		total += n
		for i := range n {
			if id := fmt.Sprintf("S-%s-%02d", subject, i+1); !there[id] {
				t.Errorf("%s is missing", id)
			}
		}
	}
	if total != 225 {
		t.Errorf("%d scenarios are asked for, want 225", total)
	}
}

// elsewhere are rows of the changes in v1.37 with what proves them, other than a scenario of the same number.
var elsewhere = map[int]string{
	22: "TestTakeover_FromKubeProxy of test/e2e", 26: "S-CT-06", 45: "S-PROC-04",
}

// TestAll_EveryChangeOfV137: rows 1 to 30, 41 to 46 and 51 to 53 of the changes in v1.37 have a scenario, or are proved
// elsewhere.
func TestAll_EveryChangeOfV137(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	there := func(id string) bool {
		return slices.ContainsFunc(all, func(s script.Scenario) bool { return s.ID == id || strings.HasPrefix(s.ID, id+"-") })
	}
	for _, rows := range [][2]int{{1, 30}, {41, 46}, {51, 53}} {
		for row := rows[0]; row <= rows[1]; row++ {
			own, other := fmt.Sprintf("S-137-%02d", row), elsewhere[row]
			switch {
			case there(own) == (other != ""):
				t.Errorf("%s: a scenario is there: %v, and %q proves it", own, there(own), other)
			case strings.HasPrefix(other, "S-") && !there(other):
				t.Errorf("%s: there is no %s", own, other)
			}
		}
	}
}
