package harness

import (
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// The real tools in a namespace: traffic only makes counters grow, writing the same rule again is
// seen, and so is a change.
func TestRulesTellAWriteFromTraffic(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	iptables := func(args ...string) { t.Helper(); feed(t, host, "", append([]string{"iptables"}, args...)...) }
	save := func() Rules { t.Helper(); return saveRules(t, host) }
	b := netnstest.Serve(t, host.Namespace, "b", netip.MustParseAddrPort("127.0.0.1:0"))
	rule := []string{"-A", "OUTPUT", "-p", "tcp", "-m", "comment", "--comment", "mark", "-j", "ACCEPT"}
	iptables(rule...)
	ask := func() {
		t.Helper()
		if _, err := host.Ask(t.Context(), "tcp", b.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	first := save()
	if len(first.Containing("--comment mark")) != 1 || first.Counted() != 1 {
		t.Fatalf("after one connection: %+v", first)
	}
	gen := generation(t, host)
	ask()
	second := save()
	if err := second.Untouched(first); err != nil {
		t.Errorf("after more traffic: %v", err)
	}
	if now := generation(t, host); now != gen {
		t.Errorf("generation went from %d to %d without a write", gen, now)
	}

	iptables("-F", "OUTPUT")
	iptables(rule...)
	third := save()
	if err := third.Untouched(second); err == nil || !strings.Contains(err.Error(), "1 rules were written again") {
		t.Errorf("after the same rule was written again: %v", err)
	}
	if now := generation(t, host); now == gen {
		t.Errorf("generation is still %d after a write", gen)
	}
	for range 3 { // the counters grow beyond what they were; the handle still tells
		ask()
	}
	if err := save().Untouched(second); err == nil || !strings.Contains(err.Error(), "iptables-save filter -A OUTPUT had handles") {
		t.Errorf("after the same rule was written again and counted: %v", err)
	}
	iptables("-A", "OUTPUT", "-j", "RETURN")
	if err := save().Untouched(third); err == nil || !strings.Contains(err.Error(), "+ iptables-save filter -A OUTPUT -j RETURN") {
		t.Errorf("after a rule was added: %v", err)
	}
}

// feed runs a program inside a host with a text as input.
func feed(t *testing.T, h *Host, text string, words ...string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(text)
	if _, err := h.Output(cmd); err != nil {
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

// Rules stay when another program adds rules around them. A rule that was written again, or
// removed, did not stay.
func TestRulesKeepWhatWasThere(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	feed(t, host, "", "iptables", "-A", "INPUT", "-p", "tcp", "-j", "ACCEPT")
	feed(t, host, "", "iptables", "-A", "INPUT", "-p", "udp", "-j", "ACCEPT")
	before := saveRules(t, host)

	feed(t, host, "", "iptables", "-N", "MINE")
	feed(t, host, "", "iptables", "-I", "INPUT", "2", "-j", "MINE")
	feed(t, host, "add table ip mine", "nft", "-f", "-")
	around := saveRules(t, host)
	if err := around.Keep(before); err != nil {
		t.Errorf("after rules were added around: %v", err)
	}
	if got := len(around.Beyond(before)); got != 3 {
		t.Errorf("%d lines are new, want 3: %q", got, around.Beyond(before))
	}
	if got := before.Beyond(before); len(got) > 0 {
		t.Errorf("lines beyond themselves: %q", got)
	}

	feed(t, host, "", "iptables", "-D", "INPUT", "1")
	if err := saveRules(t, host).Keep(before); err == nil || !strings.Contains(err.Error(), "- iptables-save filter -A INPUT -p tcp -j ACCEPT") {
		t.Errorf("after a rule was removed: %v", err)
	}
	feed(t, host, "", "iptables", "-I", "INPUT", "-p", "tcp", "-j", "ACCEPT")
	if err := saveRules(t, host).Keep(before); err == nil || !strings.Contains(err.Error(), "written again: iptables-save filter -A INPUT") {
		t.Errorf("after the rule was written again: %v", err)
	}
}

// webService has addresses and node ports that are prefixes of a neighbour's.
func webService() *corev1.Service {
	service := newService("web", corev1.ServiceTypeNodePort)
	service.Spec.ClusterIPs = []string{"172.30.0.5", "fd00:172:30::5"}
	service.Spec.Ports[0].NodePort, service.Spec.Ports[1].NodePort = 3000, 3001
	return service
}

// Changes of a Service's elements are found, those of a neighbour's or of shared ones are not.
func TestOwnFindsElements(t *testing.T) {
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

func TestOwnFindsChains(t *testing.T) {
	r := newRules()
	err := r.readIPTables("iptables-save", strings.Join([]string{
		"*nat",
		":KUBE-SVC-ABCDEFGHIJKLMNOP - [0:0]",
		`[9:540] -A KUBE-SERVICES -d 172.30.0.9/32 -m comment --comment "default/web:tcp cluster IP" -j KUBE-SVC-ABCDEFGHIJKLMNOP`,
		`[5:300] -A KUBE-SVC-ABCDEFGHIJKLMNOP -m comment --comment "default/web:tcp -> 10.244.1.6:8080" -j KUBE-SEP-ABCDEFGHIJKLMNO2`,
		`[4:240] -A KUBE-SVC-QRSTUVWXYZ234567 -m comment --comment "default/webs:tcp -> 10.244.1.6:8080" -j KUBE-SEP-ABCDEFGHIJKLMNO3`,
		"COMMIT",
	}, "\n"))
	if err != nil {
		t.Fatal(err)
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

func TestOwnOfNothing(t *testing.T) {
	if _, err := newRules().Own(webService()); err == nil || !strings.Contains(err.Error(), "web") {
		t.Errorf("rules that hold nothing of the service: %v", err)
	}
}
