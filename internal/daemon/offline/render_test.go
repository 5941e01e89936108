package offline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
)

// TestLookingPageIsTrue: each line that docs/inspect-rules.md quotes is among the rules for the
// sample manifests.
func TestLookingPageIsTrue(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "inspect-rules.md"))
	check(err)
	dir := t.TempDir()
	for _, examples := range []string{"demo", "web"} {
		check(os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "..", "examples", examples))))
	}
	rendered := map[string]string{}
	for fence, words := range map[string][]string{
		"```nft":      {"--proxy-mode", "nftables"},
		"```iptables": {"--proxy-mode", "iptables"},
	} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o := &setup.Options{Flags: config.BindRender(flags)}
		check(flags.Parse(append(words, "--hostname-override", "demo")))
		check(o.Load())
		rendered[fence], err = Render(o, dir, "")
		check(err)
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
