// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/harness"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/ruleset"
)

// The rules of another program on the node, in every table that a proxy uses, some with names like
// a proxy's. They count packets of the test and let them pass.
const (
	foreignIPTables = `*mangle
:SOMEBODY - [0:0]
-A PREROUTING -j SOMEBODY
-A SOMEBODY -p tcp -m comment --comment "somebody else's" -j RETURN
COMMIT
*nat
:SOMEBODY - [0:0]
-A POSTROUTING -j SOMEBODY
-A SOMEBODY -p sctp -j RETURN
COMMIT
*filter
:KUBE-ROUTER-INPUT - [0:0]
:SOMEBODY - [0:0]
-A INPUT -j KUBE-ROUTER-INPUT
-A FORWARD -j SOMEBODY
-A FORWARD -p tcp --dport 9 -j DROP
-A SOMEBODY -p udp -j RETURN
COMMIT
`
	foreignNFTables = `table inet kube-proxy {
	comment "another family than the proxy's"
	chain services { type filter hook forward priority 10; counter; }
}
table ip somebody {
	set ports { type inet_service; elements = { 9, 99 } }
	chain forward { type filter hook forward priority -5; tcp dport @ports counter drop; }
}
table ip6 somebody {
	map verdicts { type inet_service : verdict; elements = { 9 : drop } }
	chain prerouting { type nat hook prerouting priority -150; tcp dport vmap @verdicts; }
}
`
)

// foreign matches a change of these in the tables that are also the proxy's.
var foreign = regexp.MustCompile(`\b(SOMEBODY|KUBE-ROUTER-INPUT)\b`)

// ownTables are those that a proxy may write to.
var ownTables = map[harness.Mode][]string{
	harness.IPTables: {"ip filter", "ip nat", "ip mangle", "ip6 filter", "ip6 nat", "ip6 mangle"},
	harness.NFTables: append([]string{"ip kube-proxy", "ip6 kube-proxy"}, probeTables...),
}

// kubeletChain is the one chain that a clean-up leaves: the kubelet uses it, too.
const kubeletChain = "KUBE-FIREWALL"

// From a proxy's start to its cleanup, the rules of other programs stay and are not written again.
// After the cleanup, only those rules are left.
func TestForeignRules_Stay(t *testing.T) { inEachMode(t, testForeignRules) }

func testForeignRules(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	load(t, c.N1, foreignIPTables, "iptables-restore")
	load(t, c.N1, foreignIPTables, "ip6tables-restore")
	load(t, c.N1, foreignNFTables, "nft", "-f", "-")
	reachAll(t, "the pods work without a proxy", []*harness.Host{c.X}, c.A.Backends(), c.A)
	since, before := generation(t, c.N1), saveRules(t, c.N1)

	proxy := c.StartProxy(mode)
	clients := []*harness.Host{c.X, c.P1, c.N1}
	web := c.CreateService("web", corev1.ServiceTypeNodePort)
	c.SetEndpoints("web", c.A, c.B)
	targets := append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)
	reachAll(t, "the service works", clients, targets, c.A, c.B)
	c.SetEndpoints("web", c.C)
	reachAll(t, "the endpoints replaced", clients, targets, c.C)
	mustKeep(t, c, before, "while the proxy runs")

	if err := proxy.Stop(); err != nil {
		t.Fatal(err)
	}
	c.Cleanup("cleanup")
	now := mustKeep(t, c, before, "after the clean-up")
	for _, line := range ruleset.Missing(now, before) {
		if !strings.Contains(line, kubeletChain) {
			t.Errorf("left after the clean-up: %s", line)
		}
	}
	if written := harness.Changes(c.Commits(since), foreign); len(written) > 0 {
		t.Errorf("foreign rules were written again: %q", written)
	}
	for _, commit := range c.Commits(since) {
		if tables := commit.Tables(); !subset(tables, ownTables[mode]) {
			t.Errorf("in %s mode %v was written to: %v", mode, tables, commit)
		}
	}
	unreachableAll(t, "the service is gone with the rules", clients, targets)
	reachAll(t, "the pods work as before", []*harness.Host{c.X}, c.A.Backends(), c.A)
}

func mustKeep(t *testing.T, c *harness.Cluster, before harness.Rules, when string) harness.Rules {
	t.Helper()
	now := saveRules(t, c.N1)
	if missing := ruleset.Missing(before, now); len(missing) > 0 {
		t.Errorf("%s, these lines are gone or in another order:\n\t%s", when, strings.Join(missing, "\n\t"))
	}
	return now
}

// load feeds rules to a program inside a host.
func load(t *testing.T, h *harness.Host, rules string, words ...string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(rules)
	_, err := netnstest.Output(h, cmd)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s: %v: %s", cmd, err, failed.Stderr)
	}
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
}
