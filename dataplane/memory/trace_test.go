package memory

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// node is a small node: two endpoints behind a Service that pods reach as they
// are and all others masqueraded, and rejects and drops in the filter table.
const node = `*nat
:SERVICES - [0:0]
:SVC - [0:0]
:SEP-A - [0:0]
:SEP-B - [0:0]
:MASQ - [0:0]
:POST - [0:0]
:NODEPORTS - [0:0]
-A PREROUTING -j SERVICES
-A OUTPUT -j SERVICES
-A POSTROUTING -j POST
-A MASQ -j MARK --or-mark 0x4000
-A POST -m mark ! --mark 0x4000/0x4000 -j RETURN
-A POST -j MARK --xor-mark 0x4000
-A POST -j MASQUERADE --random-fully
-A SERVICES -m tcp -p tcp -d 172.30.0.41 --dport 80 -j SVC
-A SERVICES -m addrtype --dst-type LOCAL ! -d 127.0.0.0/8 -j NODEPORTS
-A NODEPORTS -m tcp -p tcp --dport 30080 -j MASQ
-A NODEPORTS -m tcp -p tcp --dport 30080 -j SVC
-A SVC -m tcp -p tcp -d 172.30.0.41 --dport 80 ! -s 10.244.0.0/16 -j MASQ
-A SVC -m statistic --mode random --probability 0.5 -j SEP-A
-A SVC -j SEP-B
-A SEP-A -s 10.244.1.10 -j MASQ
-A SEP-A -m tcp -p tcp -j DNAT --to-destination 10.244.1.10:8080
-A SEP-B -s 10.244.2.20 -j MASQ
-A SEP-B -m tcp -p tcp -j DNAT --to-destination 10.244.2.20:8080
COMMIT
*filter
:REJECTS - [0:0]
-A INPUT -m conntrack --ctstate NEW -j REJECTS
-A FORWARD -m conntrack --ctstate NEW -j REJECTS
-A OUTPUT -m conntrack --ctstate NEW -j REJECTS
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A REJECTS -m tcp -p tcp -d 172.30.0.42 --dport 80 -j REJECT
-A REJECTS -m tcp -p tcp -d 172.30.0.43 --dport 80 -j DROP
-A REJECTS -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30081 -j REJECT
COMMIT
`

func nodeKernel(t *testing.T) *Kernel {
	t.Helper()
	k := restored(t, node)
	k.SetLocal(netip.MustParseAddr("192.168.0.2"))
	return k
}

// tcp makes a packet; an empty in means that a process of the node sends it.
func tcp(from, to, in string) Packet {
	return Packet{
		Src: netip.AddrPortFrom(netip.MustParseAddr(from), 40000), Dst: netip.MustParseAddrPort(to),
		Protocol: service.TCP, In: in, Out: "eth0",
	}
}

func TestVerdicts(t *testing.T) {
	const pod, host, outside = "10.244.1.11", "192.168.0.2", "203.0.113.10"
	first := func(float64) bool { return true }
	last := func(float64) bool { return false }
	tests := []struct {
		name        string
		packet      Packet
		choose      Choice
		verdict     Verdict
		to          string
		masqueraded bool
	}{
		{"pod to cluster address", tcp(pod, "172.30.0.41:80", "veth1"), first, Delivered, "10.244.1.10:8080", false},
		{"pod, the other endpoint", tcp(pod, "172.30.0.41:80", "veth1"), last, Delivered, "10.244.2.20:8080", false},
		{"backend to itself", tcp("10.244.1.10", "172.30.0.41:80", "veth0"), first, Delivered, "10.244.1.10:8080", true},
		{"process to cluster address", tcp(host, "172.30.0.41:80", ""), last, Delivered, "10.244.2.20:8080", true},
		{"outside to cluster address", tcp(outside, "172.30.0.41:80", "eth1"), last, Delivered, "10.244.2.20:8080", true},
		{"outside to node port", tcp(outside, "192.168.0.2:30080", "eth1"), last, Delivered, "10.244.2.20:8080", true},
		{"process to node port", tcp(host, "192.168.0.2:30080", ""), last, Delivered, "10.244.2.20:8080", true},
		{"process to loopback node port", tcp("127.0.0.1", "127.0.0.1:30080", ""), last, Untouched, "127.0.0.1:30080", false},
		{"unused port", tcp(pod, "172.30.0.41:81", "veth1"), last, Untouched, "172.30.0.41:81", false},
		{"forwarded, rejected", tcp(pod, "172.30.0.42:80", "veth1"), last, Rejected, "172.30.0.42:80", false},
		{"process, rejected", tcp(host, "172.30.0.42:80", ""), last, Rejected, "172.30.0.42:80", false},
		{"forwarded, dropped", tcp(pod, "172.30.0.43:80", "veth1"), last, Dropped, "172.30.0.43:80", false},
		{"local, rejected on the way in", tcp(outside, "192.168.0.2:30081", "eth1"), last, Rejected, "192.168.0.2:30081", false},
		{"process, rejected behind loopback", tcp(host, "192.168.0.2:30081", ""), last, Rejected, "192.168.0.2:30081", false},
	}
	k := nodeKernel(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := k.Trace(test.packet, test.choose)
			if got.Verdict != test.verdict || got.To.String() != test.to || got.Masqueraded != test.masqueraded {
				t.Errorf("got %v to %v, masqueraded %v; want %v to %v, masqueraded %v\n%s", got.Verdict, got.To, got.Masqueraded,
					test.verdict, test.to, test.masqueraded, strings.Join(got.Steps, "\n"))
			}
			if got.Mark != 0 && got.Verdict == Delivered {
				t.Errorf("left with mark %#x, want it cleared", got.Mark)
			}
		})
	}
}

func TestPolicyDropsWhatNoRuleAccepts(t *testing.T) {
	k := restored(t, "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s 10.0.0.1 -j ACCEPT\nCOMMIT\n")
	if got := k.Trace(tcp("10.0.0.1", "10.9.9.9:1", "a"), nil).Verdict; got != Untouched {
		t.Errorf("accepted source: %v, want untouched", got)
	}
	if got := k.Trace(tcp("10.0.0.2", "10.9.9.9:1", "a"), nil).Verdict; got != Dropped {
		t.Errorf("other source: %v, want dropped", got)
	}
}

func TestInterfacesAreSeenWhereTheKernelShowsThem(t *testing.T) {
	k := restored(t, strings.Join([]string{
		"*mangle", ":IN - [0:0]",
		"-A PREROUTING -i veth+ -j MARK --or-mark 0x1",
		"-A FORWARD -i veth3 -o eth0 -j MARK --or-mark 0x2",
		"-A POSTROUTING ! -i veth+ -o eth0 -j MARK --or-mark 0x4",
		"-A OUTPUT -j IN", "-A IN ! -i veth+ -j MARK --or-mark 0x8",
		"-A INPUT -i lo -j MARK --or-mark 0x10",
		"COMMIT", "",
	}, "\n"))
	for name, test := range map[string]struct {
		packet Packet
		mark   uint32
	}{
		"forwarded":    {tcp("10.0.0.1", "10.0.0.2:1", "veth3"), 0x7},
		"other name":   {tcp("10.0.0.1", "10.0.0.2:1", "eth9"), 0x4},
		"process":      {tcp("10.0.0.1", "10.0.0.2:1", ""), 0xc},
		"over itself":  {tcp("127.0.0.1", "127.0.0.1:1", ""), 0x18},
		"to this node": {tcp("10.0.0.1", "127.0.0.1:1", "veth3"), 0x1},
	} {
		if got := k.Trace(test.packet, nil).Mark; got != test.mark {
			t.Errorf("%s: got mark %#x, want %#x", name, got, test.mark)
		}
	}
}

func TestTranslatedStateIsSeen(t *testing.T) {
	k := restored(t, strings.Join([]string{
		"*nat", "-A PREROUTING -d 10.9.9.9 -p tcp -j DNAT --to-destination 127.0.0.1:7", "COMMIT",
		"*filter", "-A INPUT -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP", "COMMIT", "",
	}, "\n"))
	if got := k.Trace(tcp("10.0.0.1", "10.9.9.9:1", "a"), nil).Verdict; got != Delivered {
		t.Errorf("translated: %v, want delivered", got)
	}
	if got := k.Trace(tcp("10.0.0.1", "127.0.0.1:7", "a"), nil).Verdict; got != Dropped {
		t.Errorf("not translated: %v, want dropped", got)
	}
}

func TestStepsNameMatchingRulesAndVisitsCountAll(t *testing.T) {
	k := restored(t, "*nat\n:C - [0:0]\n-A PREROUTING -s 10.0.0.9\n-A PREROUTING -j C\n-A C -j RETURN\n-A C -j ACCEPT\n-A PREROUTING -s 10.0.0.1\nCOMMIT\n")
	got := k.Trace(tcp("10.0.0.1", "10.9.9.9:1", "a"), nil)
	want := "nat -A PREROUTING -j C\nnat -A C -j RETURN\nnat -A PREROUTING -s 10.0.0.1/32"
	if steps := strings.Join(got.Steps, "\n"); steps != want || got.RulesVisited != 4 {
		t.Errorf("visited %d, want 4; steps\n%s\nwant\n%s", got.RulesVisited, steps, want)
	}
}

func TestOutcomesAreComplete(t *testing.T) {
	k := restored(t, strings.Join([]string{
		"*nat", ":S - [0:0]", "-A PREROUTING -j S",
		"-A S -m statistic --mode random --probability 0.3333333333 -p tcp -j DNAT --to-destination 10.1.0.1:1",
		"-A S -m statistic --mode random --probability 0.5000000000 -p tcp -j DNAT --to-destination 10.1.0.2:1",
		"-A S -p tcp -j DNAT --to-destination 10.1.0.3:1", "COMMIT", "",
	}, "\n"))
	outcomes := k.Outcomes(tcp("10.0.0.1", "10.9.9.9:1", "a"))
	if len(outcomes) != 3 {
		t.Fatalf("got %d outcomes, want 3: %+v", len(outcomes), outcomes)
	}
	sum := 0.0
	for _, o := range outcomes {
		sum += o.Probability
		if math.Abs(o.Probability-1.0/3) > 1e-9 {
			t.Errorf("%v has probability %v, want a third", o.To, o.Probability)
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("probabilities sum to %v", sum)
	}
}

func TestEqualEndsAreOneOutcome(t *testing.T) {
	k := nodeKernel(t)
	k.DeleteRule("nat", "SEP-B", 2)
	k.DeleteRule("nat", "SEP-A", 2)
	outcomes := k.Outcomes(tcp("10.244.1.11", "172.30.0.41:80", "veth1"))
	if len(outcomes) != 1 || outcomes[0].Verdict != Untouched || outcomes[0].Probability != 1 {
		t.Errorf("got %+v, want one certain outcome, untouched", outcomes)
	}
}

func TestPacketOfTheOtherFamilyPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an IPv4 packet went through an IPv6 kernel")
		}
	}()
	NewKernel(service.IPv6).Trace(tcp("10.0.0.1", "10.0.0.2:1", "a"), nil)
}
