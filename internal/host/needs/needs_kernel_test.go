// SPDX-License-Identifier: Apache-2.0

package needs

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// both wants both families.
var both = Wants{Families: service.PerFamily[bool]{true, true}, Read: sysctl.Files{}.Read, Legacy: true}

// newNode returns a namespace that forwards, with an interface.
func newNode(t *testing.T) *netns.Namespace {
	t.Helper()
	node, peer := netnstest.New(t, "node"), netnstest.New(t, "peer")
	check(t, netns.Link(node, peer, netns.LinkSpec{NameA: "eth0", NameB: "eth0"}))
	check(t, node.Sysctl("net.ipv4.ip_forward", "1"))
	check(t, node.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	return node
}

func read(t *testing.T, node *netns.Namespace, w Wants) (n Node) {
	t.Helper()
	check(t, node.Do(func() (err error) { n, err = Read(t.Context(), w); return err }))
	return n
}

func about(n Node) (all []string) {
	for _, p := range n.Problems {
		all = append(all, p.About)
	}
	return all
}

// TestRead_Forwarding: each parameter that prevents forwarding is a problem, for the families that the node serves.
func TestRead_Forwarding(t *testing.T) {
	node := newNode(t)
	if n := read(t, node, both); len(n.Problems) > 0 || len(n.Chains) > 0 {
		t.Errorf("a node that forwards: %+v", n)
	}
	only := func(f service.Family) Wants {
		w := both
		w.Families = onlyFamily(f)
		return w
	}
	for _, c := range []struct {
		parameter string
		family    service.Family
	}{{"net.ipv4.ip_forward", service.IPv4}, {"net.ipv4.conf.eth0.forwarding", service.IPv4}, {"net.ipv6.conf.all.forwarding", service.IPv6}} {
		check(t, node.Sysctl(c.parameter, "0"))
		if n := read(t, node, both); !slices.Equal(about(n), []string{c.parameter}) || n.Problems[0].Do == "" {
			t.Errorf("%s is 0: %+v", c.parameter, n.Problems)
		}
		if n := read(t, node, only(1-c.family)); len(n.Problems) > 0 {
			t.Errorf("%s is 0, in the other family: %+v", c.parameter, n.Problems)
		}
		check(t, node.Sysctl(c.parameter, "1"))
	}
}

// TestRead_Chains: Read finds other programs' base chains that have an effect, and those that drop forwarded packets
// are a problem.
func TestRead_Chains(t *testing.T) {
	for _, c := range []struct {
		name, rules  string
		want, closed []string
	}{
		{"a drop at output", "table inet fw { chain out { type filter hook output priority 5; ip daddr 10.244.1.0/24 drop; } }",
			[]string{"inet fw out (hook output, priority 5)"}, nil},
		{"one that does nothing", "table inet fw { chain out { type filter hook output priority 5; } }", nil, nil},
		{"no base chain", "table inet fw { chain out { drop; } }", nil, nil},
		{"several hooks", "table ip raw { chain a { type filter hook prerouting priority -300; notrack; } chain b { type nat hook postrouting priority 100; masquerade; } }",
			[]string{"ip raw b (hook postrouting, priority 100)", "ip raw a (hook prerouting, priority -300)"}, nil},
		{"a device", "table netdev n { chain in { type filter hook ingress device eth0 priority 0; ip saddr 192.0.2.1 drop; } }",
			[]string{"netdev n in (hook ingress of eth0, priority 0)"}, nil},
		{"a bridge", "table bridge b { chain f { type filter hook forward priority 0; policy drop; } }",
			[]string{"bridge b f (hook forward, priority 0, policy drop)"}, nil},
		{"forward drops all", "table inet fw { chain f { type filter hook forward priority 0; policy drop; } }",
			[]string{"inet fw f (hook forward, priority 0, policy drop)"}, []string{"inet fw f"}},
		{"of IPv6", "table ip6 fw { chain f { type filter hook forward priority 0; policy drop; } }",
			[]string{"ip6 fw f (hook forward, priority 0, policy drop)"}, []string{"ip6 fw f"}},
		{"forward accepts replies", "table inet fw { chain f { type filter hook forward priority 0; policy drop; ct state established,related accept; } }",
			[]string{"inet fw f (hook forward, priority 0, policy drop)"}, []string{"inet fw f"}},
		{"forward accepts by a map of states", "table inet fw { chain f { type filter hook forward priority 0; policy drop; ct state vmap {established : accept, invalid : drop}; } }",
			[]string{"inet fw f (hook forward, priority 0, policy drop)"}, []string{"inet fw f"}},
		{"forward accepts new ones", "table inet fw { chain f { type filter hook forward priority 0; policy drop; ct state new,established accept; } }",
			[]string{"inet fw f (hook forward, priority 0, policy drop)"}, nil},
		{"forward accepts pods", "table inet fw { chain f { type filter hook forward priority 0; policy drop; ip daddr 10.244.0.0/16 accept; } }",
			[]string{"inet fw f (hook forward, priority 0, policy drop)"}, nil},
		{"forward asks another chain", "table inet fw { chain pods { accept; } chain f { type filter hook forward priority 0; policy drop; jump pods; } }",
			[]string{"inet fw f (hook forward, priority 0, policy drop)"}, nil},
		{"the proxy's own", "table ip kube-proxy { chain f { type filter hook forward priority 0; drop; } }\ntable inet sluice-offload { chain f { type filter hook forward priority 0; drop; } }", nil, nil},
		{"hooks of Service chains", "table ip filter { chain KUBE-FORWARD { accept; } chain FORWARD { type filter hook forward priority 0; jump KUBE-FORWARD; } }", nil, nil},
		{"with its policy", "table ip filter { chain KUBE-FORWARD { accept; } chain FORWARD { type filter hook forward priority 0; policy drop; jump KUBE-FORWARD; } }",
			[]string{"ip filter FORWARD (hook forward, priority 0, policy drop)"}, []string{"ip filter FORWARD"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := newNode(t)
			run(t, node, strings.NewReplacer("{ ", "{\n", " }", "\n}\n", "} ", "}\n").Replace(c.rules), "nft", "-f", "-")
			n := read(t, node, both)
			var found []string
			for i := range n.Chains {
				found = append(found, n.Chains[i].Text())
			}
			if !slices.Equal(found, c.want) || !slices.Equal(about(n), c.closed) {
				t.Errorf("%q, %+v; want %q and %q", found, n.Problems, c.want, c.closed)
			}
		})
	}
}

// TestRead_IPTablesPolicy: a DROP policy of iptables-nft is a problem, with the command that changes it, unless rules
// accept the pods.
func TestRead_IPTablesPolicy(t *testing.T) {
	node := newNode(t)
	run(t, node, "", "iptables-nft", "-P", "FORWARD", "DROP")
	run(t, node, "", "iptables-nft", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
	if n := read(t, node, both); !slices.Equal(about(n), []string{"ip filter FORWARD"}) || !strings.HasSuffix(n.Problems[0].Do, "iptables -P FORWARD ACCEPT") {
		t.Errorf("%+v", n.Problems)
	}
	run(t, node, "", "iptables-nft", "-A", "FORWARD", "-s", "10.244.0.0/16", "-j", "ACCEPT")
	if n := read(t, node, both); len(n.Problems) != 0 || len(n.Chains) != 1 {
		t.Errorf("%+v", n)
	}
}

// TestRead_LegacyIPTablesPolicy: a DROP policy of iptables-legacy is a problem in both families, with the command that
// changes it. Reading creates no table.
func TestRead_LegacyIPTablesPolicy(t *testing.T) {
	legacyTables := func(node *netns.Namespace, family service.Family) (names []string) {
		check(t, node.Do(func() error { names = iptkernel.LegacyTables(family); return nil }))
		return names
	}
	own := both
	own.Legacy = false
	for _, c := range []struct {
		program, about, text string
		family               service.Family
	}{
		{"iptables-legacy", "iptables-legacy ip filter FORWARD", "iptables-legacy ip filter FORWARD (policy drop)", service.IPv4},
		{"ip6tables-legacy", "iptables-legacy ip6 filter FORWARD", "iptables-legacy ip6 filter FORWARD (policy drop)", service.IPv6},
	} {
		node := newNode(t)
		iptables := func(args ...string) { t.Helper(); run(t, node, "", append([]string{c.program}, args...)...) }
		closed := func(what string, is bool) {
			t.Helper()
			for _, w := range []Wants{both, own} {
				n := read(t, node, w)
				if got := slices.Equal(about(n), []string{c.about}); got != is || !is && len(n.Problems) > 0 {
					t.Errorf("%s, %s: %+v", c.program, what, n.Problems)
				} else if is && (!strings.HasSuffix(n.Problems[0].Do, ": "+c.program+" -P FORWARD ACCEPT") || n.Chains[len(n.Chains)-1].Text() != c.text) {
					t.Errorf("%s, %s: %+v", c.program, what, n)
				}
			}
		}
		closed("without a table", false)
		if found := legacyTables(node, c.family); len(found) > 0 {
			t.Errorf("a look created %q", found)
		}
		iptables("-P", "INPUT", "DROP")
		closed("policy accept", false)
		iptables("-P", "FORWARD", "DROP")
		closed("policy drop", true)
		iptables("-A", "FORWARD", "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT")
		iptables("-A", "FORWARD", "-m", "conntrack", "!", "--ctstate", "NEW", "-j", "ACCEPT")
		iptables("-N", "KUBE-FORWARD")
		iptables("-A", "FORWARD", "-j", "KUBE-FORWARD")
		iptables("-A", "FORWARD", "-m", "comment", "--comment", "ACCEPT", "-j", "RETURN")
		iptables("-A", "INPUT", "-j", "ACCEPT")
		closed("no rule for new connections", true)
		if n := read(t, node, Wants{Read: both.Read, Families: onlyFamily(1 - c.family)}); len(n.Problems) > 0 {
			t.Errorf("%s, in the other family: %+v", c.program, n.Problems)
		}
		for _, rule := range [][]string{{"-p", "tcp", "-j", "ACCEPT"}, {"-m", "conntrack", "--ctstate", "NEW,ESTABLISHED", "-j", "ACCEPT"}, {"-j", "CNI-FORWARD"}} {
			if rule[1] == "CNI-FORWARD" {
				iptables("-N", rule[1])
			}
			iptables(append([]string{"-A", "FORWARD"}, rule...)...)
			closed(strings.Join(rule, " "), false)
			iptables(append([]string{"-D", "FORWARD"}, rule...)...)
			closed("without it", true)
		}
		iptables("-P", "FORWARD", "ACCEPT")
		closed("policy accept again", false)
	}
}

func onlyFamily(f service.Family) (families service.PerFamily[bool]) {
	families[f] = true
	return families
}

func run(t *testing.T, node *netns.Namespace, input string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	check(t, netnstest.Start(node, cmd))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, text.String())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
