// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

const jumpsToUs = "chain that jumps to us"

// nftRules are what other programs write with nft into the tables of iptables; FAMILY is ip or ip6, ADDR an address.
var nftRules = map[string]string{
	"masquerade":             "add rule FAMILY nat POSTROUTING FAMILY saddr ADDR masquerade",
	"snat":                   "add rule FAMILY nat POSTROUTING oif lo snat to ADDR",
	"map":                    "add map FAMILY nat m { type mark : TYPE_addr; }\nadd rule FAMILY nat POSTROUTING snat to meta mark map @m",
	"anonymous set":          "add rule FAMILY nat POSTROUTING tcp dport { 1, 2 } masquerade",
	"named set":              "add set FAMILY nat s { type inet_service; }\nadd rule FAMILY nat PREROUTING tcp dport @s redirect to 1",
	"verdict map":            "add chain FAMILY filter x\nadd rule FAMILY filter FORWARD tcp dport vmap { 1 : jump x, 2 : drop }\nadd rule FAMILY filter x ct state vmap { new : accept }",
	"meter":                  "add set FAMILY filter m { type inet_service; size 9; flags dynamic; }\nadd rule FAMILY filter INPUT update @m { tcp dport limit rate 5/second } accept",
	"named counter":          "add counter FAMILY filter c\nadd rule FAMILY filter OUTPUT counter name c",
	"mangle":                 "add chain FAMILY mangle PREROUTING { type filter hook prerouting priority mangle; }\nadd rule FAMILY mangle PREROUTING meta mark set numgen inc mod 2",
	"chain":                  "add chain FAMILY nat mine { type nat hook postrouting priority 50; }",
	jumpsToUs:                "add chain FAMILY nat mine { type nat hook postrouting priority 50; }\nadd rule FAMILY nat mine tcp dport 1 jump KUBE-POSTROUTING",
	"hook of another name":   "add chain FAMILY filter PREROUTING { type filter hook prerouting priority 7; }\nadd rule FAMILY filter PREROUTING fib daddr type local counter",
	"hooks and rules":        "add chain FAMILY filter PREROUTING { type filter hook prerouting priority 7; }\nadd rule FAMILY filter FORWARD tcp dport { 1, 2 } accept\nadd counter FAMILY filter c\nadd rule FAMILY filter INPUT counter name c",
	"in our chain":           "add rule FAMILY nat KUBE-SERVICES meta mark set numgen inc mod 2",
	"in our filter chain":    "add rule FAMILY filter KUBE-FORWARD numgen inc mod 2 0 accept",
	"in the kubelet's chain": "add rule FAMILY filter KUBE-FIREWALL numgen inc mod 2 0 drop",
}

// foreign adds rules of another program.
func (k *kernelTest) foreign(rules string) {
	k.Helper()
	family, addr := "ip", "192.0.2.9"
	if k.family == service.IPv6 {
		family, addr = "ip6", "2001:db8::9"
	}
	rules = strings.NewReplacer("FAMILY", family, "ADDR", addr, "TYPE", strings.ToLower(k.family.String())).Replace(rules)
	k.run("sh", "-c", fmt.Sprintf("nft -f - <<'.'\n%s\n.", rules))
}

// ownChain matches a chain of a proxy or of the kubelet in a list of nft.
var ownChain = regexp.MustCompile(`(?ms)^\tchain KUBE-.*?^\t}\n`)

// others returns what the tables contain of other programs.
func (k *kernelTest) others() string {
	k.Helper()
	var kept []string
	for line := range strings.Lines(ownChain.ReplaceAllString(k.run("nft", "-s", "list", "ruleset"), "")) {
		if strings.TrimSpace(line) != "" && line[0] != '#' && !strings.Contains(line, "KUBE-") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestKernelWriter_UnprintableForeignRules: the proxy starts, reads, repairs and removes its rules next to foreign
// rules that iptables cannot print, and changes no others.
func TestKernelWriter_UnprintableForeignRules(t *testing.T) {
	testenv.NeedsTool(t, "nft", "nftables")
	for name, rules := range nftRules {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			t.Run(strings.ReplaceAll(name, " ", "-")+" "+family.String(), func(t *testing.T) {
				inNamespace(t, func() { newKernelTest(t, NFT, family).serveAlongside(name, rules) })
			})
		}
	}
}

func (k *kernelTest) serveAlongside(name, rules string) {
	want := k.scaffold()
	k.write(creations(want)...)
	k.foreign(rules)
	for _, dry := range []bool{true, false} {
		if err := k.tool.Present(k.Context(), dry); err != nil {
			k.Error(err)
		}
	}
	if repairs := k.repairs(want); len(repairs) > 0 != strings.HasPrefix(name, "in ") {
		k.Errorf("the proxy's rules differ: %v", repairs)
	} else if len(repairs) > 0 {
		k.write(repairs...)
	}
	others := k.others()
	k.run(k.tool.programs.iptables, "-t", "nat", "-F", "KUBE-SVC-NPX46M4PTMTKRN6Y")
	k.run(k.tool.programs.iptables, "-t", "filter", "-F", "KUBE-FORWARD")
	hook := k.hooks(render.NAT)[0]
	parsed, err := render.ParseHook(hook.ID)
	if err != nil {
		k.Fatal(err)
	}
	k.run(k.tool.programs.iptables, append([]string{"-t", "nat", "-D", parsed.Chain}, parsed.Rule...)...)
	repairs := k.repairs(want)
	if len(repairs) != 3 {
		k.Errorf("%d repairs, want 3: %v", len(repairs), repairs)
	}
	k.write(repairs...)
	k.expect(want...)
	k.cleanUpAlongside(others, name == jumpsToUs)
}

// cleanUpAlongside removes all rules of the proxy.
func (k *kernelTest) cleanUpAlongside(others string, held bool) {
	k.Helper()
	before := k.run("nft", "-s", "list", "ruleset")
	dry, err := Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), true)
	if now := k.run("nft", "-s", "list", "ruleset"); err != nil && !held || now != before {
		k.Errorf("a dry clean-up: %v\nbefore\n%safter\n%s", err, before, now)
	}
	summary, err := Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false)
	if held {
		if err == nil || !strings.Contains(err.Error(), `"-j KUBE-POSTROUTING" in chain mine`) {
			k.Errorf("error %v, want one that names the foreign rule", err)
		}
		k.run("nft", "delete", "chain", map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[k.family], "nat", "mine")
		others, dry.Hooks = k.others(), 0
		summary, err = Cleanup(k.Context(), k.family, k.tool, DefaultOwnership(), false)
	}
	if err != nil || summary.Hooks != dry.Hooks {
		k.Errorf("summary %+v, dry %+v, %v", summary, dry, err)
	}
	k.expect(k.shared()...)
	if now := k.others(); now != others {
		k.Errorf("before:\n%s\nafter:\n%s", others, now)
	}
}

// repairs returns the changes from what the writer reads to what is wanted.
func (k *kernelTest) repairs(want []*dataplane.Object) (changes []dataplane.Change) {
	k.Helper()
	got := k.read()
	for _, w := range want {
		now, exists := got[w.ID]
		if delete(got, w.ID); !exists {
			changes = append(changes, changeOf(service.Node, nil, w))
		} else if now.Body != w.Body {
			changes = append(changes, changeOf(service.Node, &now, w))
		}
	}
	for id := range got {
		k.Errorf("%v was read and should not be there", id)
	}
	return changes
}

// TestKernelDetect_UnprintableRules: foreign rules that iptables cannot print do not hide Service rules and a DROP
// policy from the choice of a variant.
func TestKernelDetect_UnprintableRules(t *testing.T) {
	inNamespace(t, func() {
		k := newKernelTest(t, NFT, service.IPv4)
		k.restore("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]\n-A KUBE-SERVICES -j RETURN\n-A OUTPUT -j KUBE-SERVICES\n" +
			"-A POSTROUTING\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n-A OUTPUT\nCOMMIT\n")
		clean := FindFormer(k.Context())
		k.foreign(nftRules["masquerade"])
		k.foreign(nftRules["named counter"])
		if now := FindFormer(k.Context()); len(clean) == 0 || clean[0].ServicePorts != 1 || !clean[0].ForwardDropped || now[0].String() != clean[0].String() || !now[0].ForwardDropped {
			t.Errorf("before %+v, after %+v", clean, now)
		}
		legacy := newKernelTest(t, Legacy, service.IPv4)
		legacy.restore("*nat\n-A OUTPUT\nCOMMIT\n")
		if d, err := Detect(k.Context(), Auto, []service.Family{service.IPv4}); err != nil || d.Variant != NFT || d.Reason != "it holds more rules of Kubernetes" {
			t.Errorf("Detect = %+v, %v", d, err)
		}
	})
}

// TestKernelExec_OccupiedChain: if another program created a chain of our hooks with another hook, type or priority, or
// as an ordinary chain, Present returns an error, in a dry run as well. A chain as iptables creates it is accepted.
func TestKernelExec_OccupiedChain(t *testing.T) {
	for chain, hook := range map[string]string{
		"nat POSTROUTING": "type nat hook postrouting priority 50", "nat PREROUTING": "type nat hook prerouting priority -50",
		"nat OUTPUT": "type nat hook output priority 0", "filter INPUT": "type filter hook input priority 10",
		"filter FORWARD": "type filter hook forward priority -1", "filter OUTPUT": "type route hook output priority 0",
		"nat INPUT": "", "filter PREROUTING": "",
	} {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			inNamespace(t, func() {
				k := newKernelTest(t, NFT, family)
				table, _, _ := strings.Cut(chain, " ")
				add := "add table FAMILY " + table + "\nadd chain FAMILY " + chain
				if hook == "" { // no hook of ours
					k.foreign(add)
				} else {
					k.foreign(add + " { " + hook + "; }")
				}
				for _, dry := range []bool{true, false} {
					err := k.tool.Present(k.Context(), dry)
					if _, missing := errors.AsType[*MissingError](err); missing != (hook != "") {
						t.Errorf("%s %s, dry %v: %v", family, chain, dry, err)
					}
				}
			})
		}
	}
}
