package harness

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/netns"
)

// The real tools in a namespace: traffic only makes counters grow, writing the same rule again is seen,
// and so is a change.
func TestRulesTellAWriteFromTraffic(t *testing.T) {
	host := &Host{Namespace: newNamespace(t, "n")}
	iptables := func(args ...string) {
		t.Helper()
		if err := host.Run(exec.Command("iptables", args...)); err != nil {
			t.Fatalf("iptables %s: %v", strings.Join(args, " "), err)
		}
	}
	save := func() Rules {
		t.Helper()
		r, err := SaveRules(host)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	b, err := netns.StartBackend(host.Namespace, "b", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
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
	if err := save().Untouched(second); err == nil || !strings.Contains(err.Error(), "iptables-save filter -A OUTPUT had rules with handles") {
		t.Errorf("after the same rule was written again and counted: %v", err)
	}
	iptables("-A", "OUTPUT", "-j", "RETURN")
	if err := save().Untouched(third); err == nil || !strings.Contains(err.Error(), "+ iptables-save filter -A OUTPUT -j RETURN") {
		t.Errorf("after a rule was added: %v", err)
	}
}

func generation(t *testing.T, h *Host) uint32 {
	t.Helper()
	gen, err := Generation(h)
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

func TestOfServiceKeepsOwnChainsOnly(t *testing.T) {
	r := Rules{packets: make(map[string]uint64)}
	err := r.read("iptables-save", strings.Join([]string{
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
	own := r.OfService("web")
	if len(own.lines) != 1 || own.packets[own.lines[0]] != 5 || own.Counted() != 1 {
		t.Errorf("rules of web: %+v", own)
	}
}
