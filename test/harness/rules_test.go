// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// feed runs a program inside a host with a text as input.
func feed(t *testing.T, h *Host, text string, words ...string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(text)
	if _, err := netnstest.Output(h, cmd); err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("%s: %v: %s", strings.Join(words, " "), err, failed.Stderr)
		}
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
}

func saveRules(t *testing.T, h *Host) Rules {
	t.Helper()
	r, err := SaveRules(h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func generation(t *testing.T, h *Host) uint32 {
	t.Helper()
	gen, err := Generation(h)
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

// webService has addresses and node ports that are prefixes of a neighbour's.
func webService() *corev1.Service {
	service := newService("web", corev1.ServiceTypeNodePort)
	service.Spec.ClusterIPs = []string{"172.30.0.5", "fd00:172:30::5"}
	service.Spec.Ports[0].NodePort, service.Spec.Ports[1].NodePort = 3000, 3001
	return service
}

// TestRules_OwnElements: Own finds changes of a Service's elements, and not those of another Service or of shared
// elements.
func TestRules_OwnElements(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	m := watch(t, host)
	feed(t, host, `table ip kube-proxy {
	map frontends { typeof ip daddr . meta l4proto . th dport : verdict; }
	map nodeports { typeof meta l4proto . th dport : verdict; }
	set active-cluster-ips { type ipv4_addr; }
	set hairpins { type ipv4_addr . ipv4_addr . inet_proto . inet_service; }
}
table ip6 kube-proxy {
	map frontends { typeof ip6 daddr . meta l4proto . th dport : verdict; }
}
add element ip kube-proxy frontends { 172.30.0.5 . tcp . 80 comment "default/web:tcp" : accept }
add element ip kube-proxy frontends { 172.30.0.50 . tcp . 80 comment "default/neighbour:tcp" : accept }
add element ip kube-proxy nodeports { tcp . 3000 : accept, udp . 3001 : accept }
add element ip kube-proxy nodeports { tcp . 30001 : accept, udp . 3000 : accept }
add element ip kube-proxy active-cluster-ips { 172.30.0.5, 172.30.0.50 }
add element ip kube-proxy hairpins { 10.244.1.6 . 10.244.1.6 . tcp . 8080 }
add element ip6 kube-proxy frontends { fd00:172:30::5 . tcp . 80 : accept, fd00:172:30::50 . tcp . 80 : accept }
`, "nft", "-f", "-")
	own, err := saveRules(t, host).Own(webService())
	if err != nil {
		t.Fatal(err)
	}
	since := generation(t, host)
	feed(t, host, `delete element ip kube-proxy frontends { 172.30.0.5 . tcp . 80, 172.30.0.50 . tcp . 80 }
delete element ip kube-proxy nodeports { tcp . 3000, tcp . 30001, udp . 3001, udp . 3000 }
flush set ip kube-proxy active-cluster-ips
flush set ip kube-proxy hairpins
delete element ip6 kube-proxy frontends { fd00:172:30::5 . tcp . 80, fd00:172:30::50 . tcp . 80 }
`, "nft", "-f", "-")
	commits, err := m.Commits(since)
	if err != nil {
		t.Fatal(err)
	}
	got := Changes(commits, own)
	slices.Sort(got)
	want := []string{
		"delete element ip kube-proxy active-cluster-ips ac1e0005",
		"delete element ip kube-proxy frontends ac1e0005 06000000 00500000 default/web:tcp",
		"delete element ip kube-proxy nodeports 06000000 0bb80000",
		"delete element ip kube-proxy nodeports 11000000 0bb90000",
		"delete element ip6 kube-proxy frontends fd000172 00300000 00000000 00000005 06000000 00500000",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRules_OwnChains: Own finds changes of a Service's chains, and not those of another Service or of shared chains.
func TestRules_OwnChains(t *testing.T) {
	r := Rules{
		"iptables-save nat :KUBE-SVC-ABCDEFGHIJKLMNOP -",
		`iptables-save nat -A KUBE-SERVICES -d 172.30.0.9/32 -m comment --comment "default/web:tcp cluster IP" -j KUBE-SVC-ABCDEFGHIJKLMNOP`,
		`iptables-save nat -A KUBE-SVC-ABCDEFGHIJKLMNOP -m comment --comment "default/web:tcp -> 10.244.1.6:8080" -j KUBE-SEP-ABCDEFGHIJKLMNO2`,
		`iptables-save nat -A KUBE-SVC-QRSTUVWXYZ234567 -m comment --comment "default/webs:tcp -> 10.244.1.6:8080" -j KUBE-SEP-ABCDEFGHIJKLMNO3`,
	}
	own, err := r.Own(webService())
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]bool{
		"add rule ip nat KUBE-SVC-ABCDEFGHIJKLMNOP":     true,
		"delete chain ip nat KUBE-SVC-ABCDEFGHIJKLMNOP": true,
		"add rule ip nat KUBE-SVC-QRSTUVWXYZ234567":     false,
		"add rule ip nat KUBE-SERVICES":                 false,
	} {
		if got := own.MatchString(change); got != want {
			t.Errorf("%s: found %v, want %v", change, got, want)
		}
	}
}
