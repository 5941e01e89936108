package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteFile(t *testing.T) {
	c, _ := load(t, "--proxy-mode=nftables", "--cluster-cidr=10.0.0.0/8", "--sluice-spacing=5ms")
	path := filepath.Join(t.TempDir(), "out.conf")
	if err := c.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "---\n")
	for _, line := range []string{"kind: KubeProxyConfiguration\n", "mode: nftables\n", "nodePortAddresses:\n- primary\n", "clusterCIDR: 10.0.0.0/8\n", "oomScoreAdj: -999\n"} {
		if !strings.Contains(first, line) {
			t.Errorf("no %q in the first document:\n%s", line, first)
		}
	}
	for _, line := range []string{"apiVersion: sluice.dev/v1alpha1\n", "kind: SluiceConfiguration\n", "  spacing: 5ms\n"} {
		if !strings.Contains(second, line) {
			t.Errorf("no %q in the second document:\n%s", line, second)
		}
	}
	if err := c.WriteFile(filepath.Join(path, "below")); err == nil || !strings.HasPrefix(err.Error(), "--write-config-to: ") {
		t.Errorf("error %v", err)
	}
}
