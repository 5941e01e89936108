package sysctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdjustOOMScore(t *testing.T) {
	f := newRoot(t, machine())
	if err := f.AdjustOOMScore(-999); err != nil {
		t.Fatal(err)
	}
	if got := valueOf(t, f, "proc/self/oom_score_adj"); got != "-999" {
		t.Errorf("the score is %s", got)
	}
	if err := os.RemoveAll(filepath.Join(f.Root, "proc")); err != nil {
		t.Fatal(err)
	}
	err := f.AdjustOOMScore(-999)
	if err == nil || !strings.Contains(err.Error(), "/proc/self/oom_score_adj") || !strings.Contains(err.Error(), "oomScoreAdj") {
		t.Errorf("got %v", err)
	}
}
