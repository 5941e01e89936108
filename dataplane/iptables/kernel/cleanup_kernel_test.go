// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
)

// kubeletAndOthers writes what a cleanup must leave unchanged: chains and rules of other programs
// in every table, those of the kubelet, and the firewall that the kubelet shares.
func (k *kernelTest) kubeletAndOthers() {
	k.Helper()
	k.restore("*mangle\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\n:OTHER - [0:0]\n" +
		"-A PREROUTING -j OTHER\n-A OTHER -m comment --comment \"a b\" -j RETURN\nCOMMIT\n" +
		"*filter\n:KUBE-KUBELET-CANARY - [0:0]\n:KUBE-FIREWALL - [0:0]\n:OTHER - [0:0]\n:KUBE-MINE - [0:0]\n" +
		"-A INPUT -j KUBE-FIREWALL\n-A OUTPUT -j KUBE-FIREWALL\n-A FORWARD -j OTHER\n-A OTHER " + k.dst("7") + " -j DROP\n" +
		"-A KUBE-FIREWALL " + k.dst("8") + " -j DROP\nCOMMIT\n" +
		"*nat\n:KUBE-KUBELET-CANARY - [0:0]\n:KUBE-MARK-DROP - [0:0]\n:OTHER - [0:0]\n" +
		"-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000\n-A PREROUTING -j OTHER\n-A OTHER -p tcp " + k.dnat("9") + "\nCOMMIT\n")
}

// TestKernelCleanup_LeavesForeignObjects: a cleanup removes all of Sluice's objects, and no object of the kubelet or
// other programs.
func TestKernelCleanup_LeavesForeignObjects(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.kubeletAndOthers()
		before := k.state()
		k.write(creations(k.scaffold())...)
		if k.state() == before {
			k.Fatal("nothing was written")
		}
		summary, err := Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false)
		if err != nil {
			k.Fatal(err)
		}
		if after := k.state(); after != before {
			k.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if summary.Hooks != 12 || summary.Chains[render.Mangle] != 1 || summary.Chains[render.Filter] < 3 || summary.Chains[render.NAT] < 5 {
			k.Errorf("summary %+v", summary)
		}
		summary, err = Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false)
		if err != nil || summary.Hooks != 0 || len(summary.Chains) != 0 {
			k.Errorf("second time: %+v, %v", summary, err)
		}
	})
}

// TestKernelCleanup_NamesRuleHoldingChain: if a foreign rule jumps to a chain, the cleanup keeps this chain and returns
// an error that names the rule.
func TestKernelCleanup_NamesRuleHoldingChain(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		k.write(creations(k.scaffold())...)
		k.restore("*nat\n:OTHER - [0:0]\n-A OTHER -p udp -j KUBE-MARK-MASQ\nCOMMIT\n")
		_, err := Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false)
		if err == nil || !strings.Contains(err.Error(), `"-p udp -j KUBE-MARK-MASQ" in chain OTHER`) || !strings.Contains(err.Error(), "nat") {
			k.Errorf("error %v, want one that names the rule", err)
		}
		k.expect(append(k.shared(), chainObject(render.NAT, "KUBE-MARK-MASQ"))...)
		k.run(k.tool.programs.iptables, "-t", "nat", "-F", "OTHER")
		if _, err := Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false); err != nil {
			k.Error(err)
		}
		k.expect(k.shared()...)
	})
}

// shared returns the part of the scaffold that the kubelet has as well.
func (k *kernelTest) shared() []*dataplane.Object {
	objects := []*dataplane.Object{chainObject(render.Filter, "KUBE-FIREWALL", k.dst("8")+" -j DROP")}
	for _, hook := range k.hooks(render.Filter) {
		if hook.Refs()[0] == objects[0].ID {
			objects = append(objects, hook)
		}
	}
	return objects
}
