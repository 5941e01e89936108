package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLookingPageIsTrue: each line that docs/looking.md quotes is among the rules for the
// sample manifests.
func TestLookingPageIsTrue(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "looking.md"))
	check(t, err)
	dir := t.TempDir()
	for _, examples := range []string{"demo", "web"} {
		check(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "examples", examples))))
	}
	rendered := map[string]string{}
	for fence, words := range map[string][]string{
		"```nft":      {"--proxy-mode", "nftables"},
		"```iptables": {"--proxy-mode", "iptables"},
	} {
		rendered[fence], err = Render(parsed(t, append(words, "--hostname-override", "demo")...), dir, "")
		check(t, err)
	}
	fence, quotes := "", 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			fence = line
		case rendered[fence] != "":
			quotes++
			if !strings.Contains(rendered[fence], line) {
				t.Errorf("%s\nis no longer rendered", line)
			}
		}
	}
	if quotes < 5 {
		t.Errorf("only %d lines are quoted; the test proves little", quotes)
	}
}
