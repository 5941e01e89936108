package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// kubeletIPTables is what a kubelet has in both families before any proxy comes: the chain that it
// shares with one, which no clean-up of a proxy may take away. The built-in chains are there
// because iptables makes them when they are first used, and never removes them.
const kubeletIPTables = `*mangle
:PREROUTING ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
COMMIT
`

// kubeletGuard is that chain's content in IPv4.
const kubeletGuard = `*filter
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
`

// settings are the kernel parameters of a network namespace that a proxy with cleanUpLines sets:
// those about ARP in userspace mode only, route_localnet in iptables mode only, and the others in both
// iptables and nftables mode.
var settings = []string{
	"net.ipv4.conf.all.arp_announce",
	"net.ipv4.conf.all.arp_ignore",
	"net.ipv4.conf.all.route_localnet",
	"net.netfilter.nf_conntrack_tcp_timeout_established",
	"net.netfilter.nf_conntrack_tcp_timeout_close_wait",
	"net.netfilter.nf_conntrack_tcp_be_liberal",
	"net.netfilter.nf_conntrack_udp_timeout",
	"net.netfilter.nf_conntrack_udp_timeout_stream",
}

// cleanUpLines are more lines of a configuration. They continue the section about conntrack.
var cleanUpLines = []string{
	"  tcpEstablishedTimeout: 23h", "  tcpCloseWaitTimeout: 59m", "  tcpBeLiberal: true", "  udpTimeout: 31s", "  udpStreamTimeout: 121s",
	"clusterCIDR: " + harness.PodCIDRs,
}

// After either clean-up command, iptables-save and nft print what they printed before the first
// proxy: the rules of the kubelet and of other programs. Kernel parameters have their old values. A
// second clean-up finds nothing to do.
func TestCleanUpLeavesWhatWasThere(t *testing.T) { inEachMode(t, testCleanUp) }

func testCleanUp(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	for _, restore := range []string{"iptables-restore", "ip6tables-restore"} {
		load(t, c.N1, kubeletIPTables, restore)
		load(t, c.N1, foreignIPTables, restore, "--noflush")
	}
	load(t, c.N1, kubeletGuard, "iptables-restore", "--noflush")
	load(t, c.N1, foreignNFTables, "nft", "-f", "-")
	before, parameters := printedRules(t, c.N1), readSettings(t, c.N1)
	config := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(config, []byte(c.Configuration(mode, cleanUpLines...)), 0o644); err != nil {
		t.Fatal(err)
	}
	web := c.CreateService("web", corev1.ServiceTypeNodePort, func(spec *corev1.ServiceSpec) {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	c.SetEndpoints("web", c.A)
	clients, targets := []*harness.Host{c.X, c.P1, c.N1}, append(clusterIPs(t, web), nodePorts(t, web, c.N1)...)

	for _, command := range [][]string{{"cleanup"}, {"proxy", "--cleanup"}} {
		proxy := c.StartProxyWithConfig(config)
		reachAll(t, startMax, "the service works", clients, targets, c.A)
		mustBeSet(t, mode, parameters, readSettings(t, c.N1))
		if err := proxy.Stop(); err != nil {
			t.Fatal(err)
		}
		if mode == harness.Userspace {
			unreachableAll(t, changeMax, "and nobody serves it without a proxy", clients, targets)
		} else {
			reachAll(t, changeMax, "and goes on without a proxy", clients, targets, c.A)
		}
		c.Cleanup(command...)
		after := printedRules(t, c.N1)
		for program := range before {
			mustPrint(t, strings.Join(command, " "), program, before[program], after[program])
		}
		if now := readSettings(t, c.N1); !maps.Equal(now, parameters) {
			t.Errorf("after %s, kernel parameters are %v, and before the start %v", strings.Join(command, " "), now, parameters)
		}
		unreachableAll(t, changeMax, "the service is gone with the rules", clients, targets)
		since := generation(t, c.N1)
		c.Cleanup(command...)
		if now := generation(t, c.N1); now != since {
			t.Errorf("a second clean-up wrote: %v", c.Commits(since))
		}
	}
}

// readSettings returns the settings of a host.
func readSettings(t *testing.T, h *harness.Host) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, name := range settings {
		value, err := h.ReadSysctl(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = value
	}
	return all
}

// mustBeSet fails the test if the proxy has not changed the settings: otherwise the later
// comparison would prove nothing.
func mustBeSet(t *testing.T, mode harness.Mode, before, now map[string]string) {
	t.Helper()
	for _, name := range settings {
		want := mode != harness.Userspace
		switch {
		case strings.HasPrefix(name, "net.ipv4.conf.all.arp"):
			want = mode == harness.Userspace
		case strings.HasPrefix(name, "net.ipv4."):
			want = mode == harness.IPTables
		}
		if set := now[name] != before[name]; set != want {
			t.Errorf("%s: the proxy has set it: %v, want %v; it was %s and is %s", name, set, want, before[name], now[name])
		}
	}
}

// printedRules returns what each program prints of a host's rules, without counters.
func printedRules(t *testing.T, h *harness.Host) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, words := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "--stateless", "list", "ruleset"}} {
		text, err := h.Output(exec.Command(words[0], words[1:]...))
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				line, _, _ = strings.Cut(line, " [") // the counters of a chain
				all[words[0]] = append(all[words[0]], line)
			}
		}
	}
	return all
}

// mustPrint fails the test if a program's output has changed.
func mustPrint(t *testing.T, when, program string, before, now []string) {
	t.Helper()
	if !slices.Equal(before, now) {
		t.Errorf("after %s, %s prints\n\t%s\nand before the start\n\t%s", when, program, strings.Join(now, "\n\t"), strings.Join(before, "\n\t"))
	}
}
