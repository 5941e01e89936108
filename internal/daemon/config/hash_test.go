// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

// TestHash: configurations with the same effect have the same hash, and each setting changes it.
func TestHash(t *testing.T) {
	const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	const own = "---\napiVersion: sluice.dev/v1alpha1\nkind: SluiceConfiguration\n"
	hash := func(text string, flags ...string) string {
		t.Helper()
		c, _ := load(t, append([]string{"--config", write(t, text)}, flags...)...)
		return c.Hash()
	}
	base := hash(head + "mode: iptables\nclusterCIDR: 10.0.0.0/8\n")
	if len(base) != HashSize {
		t.Errorf("%q does not have %d digits", base, HashSize)
	}
	for name, same := range map[string]string{
		"order and comments": hash(head + "# a comment\nclusterCIDR: 10.0.0.0/8\nmode: iptables\n"),
		"a default":          hash(head + "mode: iptables\nclusterCIDR: 10.0.0.0/8\noomScoreAdj: -999\n" + own),
		"the name of a node": hash(head+"mode: iptables\nclusterCIDR: 10.0.0.0/8\n", "--hostname-override=a"),
		"a name in the file": hash(head + "mode: iptables\nclusterCIDR: 10.0.0.0/8\nhostnameOverride: b\n"),
	} {
		if same != base {
			t.Errorf("%s: %s, want %s", name, same, base)
		}
	}
	const dir = "--sluice-state-dir=/run/"
	if a, b := hash(head, dir+"a"), hash(head, dir+"b"); a != b {
		t.Errorf("the value of a flag changes the hash: %s, %s", a, b)
	}
	for name, other := range map[string]string{
		"kube-proxy's document": hash(head + "mode: iptables\nclusterCIDR: 10.1.0.0/16\n"),
		"Sluice's document":     hash(head + "mode: iptables\nclusterCIDR: 10.0.0.0/8\n" + own + "balancing: {seed: 1}\n"),
	} {
		if other == base {
			t.Errorf("a change of %s does not change the hash", name)
		}
	}
}
