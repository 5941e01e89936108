package netns

import (
	"os"
	"testing"
)

// The value must change inside, and must not change here, where the rest of the machine lives.
func TestSysctlIsPerNamespace(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	const key = "net.ipv4.ip_forward"
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "0", "1"} {
		if err := a.Sysctl(key, value); err != nil {
			t.Fatal(err)
		}
		opposite := map[string]string{"0": "1", "1": "0"}[value]
		if err := b.Sysctl(key, opposite); err != nil {
			t.Fatal(err)
		}
		for n, want := range map[*Namespace]string{a: value, b: opposite} {
			if got, err := n.ReadSysctl(key); err != nil || got != want {
				t.Errorf("%s in %s = %q, %v; want %q", key, n.Name(), got, err, want)
			}
		}
	}
	after, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Errorf("%s outside went from %q to %q", key, before, after)
	}
}

func TestSysctlRefusesTheMachinesOwn(t *testing.T) {
	n := newNamespace(t, "n")
	for _, key := range []string{"kernel.hostname", "net/../kernel/hostname", "net.ipv4.no_such_key"} {
		if err := n.Sysctl(key, "1"); err == nil {
			t.Errorf("Sysctl(%q) = nil, want an error", key)
		}
	}
}

func TestSysctlWithADotInTheInterfaceName(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	if err := Link(a, b, LinkSpec{NameA: "eth0.1", NameB: "eth0"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Sysctl("net/ipv4/conf/eth0.1/rp_filter", "2"); err != nil {
		t.Error(err)
	}
}
