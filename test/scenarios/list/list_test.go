package list

import (
	"fmt"
	"testing"
)

// numbers is how many acceptance scenarios there are by subject; each subject is numbered from 1.
// Further ones of our own may follow.
var numbers = map[string]int{
	"CIP": 25, "NP": 21, "LB": 10, "EXT": 6, "SRC": 14, "ETP": 12, "ITP": 8, "TERM": 12, "TOPO": 11, "AFF": 10,
	"HC": 11, "IN": 17, "CT": 10, "SYNC": 16, "V": 12, "N": 8, "PROC": 22,
}

// TestEveryScenarioIsThere: none of the acceptance scenarios is left out.
func TestEveryScenarioIsThere(t *testing.T) {
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
