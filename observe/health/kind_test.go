package health

import (
	"os"
	"strings"
	"testing"
)

// TestKindsAreDocumented: each kind has advice, and a row in docs/health.md.
func TestKindsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/health.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := Kinds()
	if len(kinds) < 12 {
		t.Errorf("kinds: %v", kinds)
	}
	for _, k := range kinds {
		if k.Advice() == "" {
			t.Errorf("%s: no advice", k)
		}
		if n := strings.Count(string(page), "\n| `"+string(k)+"` |"); n != 1 {
			t.Errorf("%s: %d rows in docs/health.md, want 1", k, n)
		}
	}
	if advice := Kind("unheard-of").Advice(); advice != "" {
		t.Errorf("advice about nothing: %q", advice)
	}
}
