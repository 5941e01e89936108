// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestModuleState(t *testing.T) {
	loaded, installed := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"modules.builtin": "kernel/net/netfilter/nf_conntrack.ko\n",
		"modules.dep":     "kernel/net/netfilter/ipvs/ip_vs.ko.xz: kernel/lib/libcrc32c.ko.xz\n",
	} {
		if err := os.WriteFile(filepath.Join(installed, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(loaded, "ip_set"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ip_set": "present", "nf_conntrack": "built in", "ip_vs": "can be loaded", "ip_vs_rr": "not loaded", "vs": "not loaded",
	} {
		if state := moduleState(name, loaded, installed); state != want {
			t.Errorf("%s: %s, want %s", name, state, want)
		}
	}
}
