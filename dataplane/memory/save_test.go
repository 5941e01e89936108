package memory

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// canonical are rules as they may be written, and as both variants of
// iptables-save 1.8.9 print them. differential_kernel_test.go shows that this is
// what they print here.
var canonical = []struct{ family, table, written, saved string }{
	{"4", "nat", "-m tcp -p tcp -d 10.0.0.41 --dport 80 -j OTHER", "-d 10.0.0.41/32 -p tcp -m tcp --dport 80 -j OTHER"},
	{"6", "nat", "-m tcp -p tcp -d fd00::41/128 --dport 80 -j OTHER", "-d fd00::41/128 -p tcp -m tcp --dport 80 -j OTHER"},
	{"4", "nat", "-p tcp -m tcp -j DNAT --to-destination 10.0.0.1:80", ""},
	{"6", "nat", "-p tcp -m tcp -j DNAT --to-destination [fd00::1]:80", ""},
	{"46", "nat", "-m statistic --mode random --probability 0.3333333333 -j RETURN", "-m statistic --mode random --probability 0.33333333349 -j RETURN"},
	{"46", "nat", "-m statistic --mode random --probability 0.5 -j RETURN", "-m statistic --mode random --probability 0.50000000000 -j RETURN"},
	{"46", "nat", "-m statistic --mode random --probability 0.0909090909 -j RETURN", "-m statistic --mode random --probability 0.09090909082 -j RETURN"},
	{"46", "nat", "-m statistic --mode random --probability 0.0010000000 -j RETURN", "-m statistic --mode random --probability 0.00100000016 -j RETURN"},
	{"4", "nat", "-m recent --name X --rcheck --seconds 10 --reap -j RETURN", "-m recent --rcheck --seconds 10 --reap --name X --mask 255.255.255.255 --rsource -j RETURN"},
	{"6", "nat", "-m recent --name X --rcheck --seconds 10 --reap -j RETURN", "-m recent --rcheck --seconds 10 --reap --name X --mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff --rsource -j RETURN"},
	{"4", "nat", "-m recent --name X --set -p udp -m udp -j RETURN", "-p udp -m recent --set --name X --mask 255.255.255.255 --rsource -m udp -j RETURN"},
	{"46", "nat", `-m comment --comment "foo bar" -m addrtype --src-type LOCAL -j RETURN`, ""},
	{"46", "nat", `-m comment --comment foo -j MARK --or-mark 0x00004000`, "-m comment --comment foo -j MARK --set-xmark 0x4000/0x4000"},
	{"46", "nat", `-m comment --comment "x\"y'z:1" -j RETURN`, `-m comment --comment "x\"y\'z:1" -j RETURN`},
	{"46", "nat", "-j MARK --xor-mark 0x4000", "-j MARK --set-xmark 0x4000/0x0"},
	{"46", "nat", "-j MARK --and-mark 0xff", "-j MARK --set-xmark 0x0/0xffffff00"},
	{"46", "nat", "-j MARK --set-mark 7", "-j MARK --set-xmark 0x7/0xffffffff"},
	{"46", "nat", "-j MARK --set-mark 0x4/0xf0", "-j MARK --set-xmark 0x4/0xf4"},
	{"46", "nat", "-j MARK --set-xmark 0x4/0xff", ""},
	{"46", "nat", "-m mark ! --mark 0x00004000/0x00004000 -j RETURN", "-m mark ! --mark 0x4000/0x4000 -j RETURN"},
	{"46", "nat", "-m mark --mark 0x4000 -j RETURN", ""},
	{"46", "nat", "-j MASQUERADE --random-fully", ""},
	{"46", "nat", "-j MASQUERADE", ""},
	{"4", "nat", "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -m addrtype --dst-type LOCAL ! -d 127.0.0.0/8 -i eth+ -j RETURN",
		"! -d 127.0.0.0/8 -i eth+ -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -m addrtype --dst-type LOCAL -j RETURN"},
	{"6", "nat", "-m addrtype --dst-type LOCAL ! -d ::1/128 -j RETURN", "! -d ::1/128 -m addrtype --dst-type LOCAL -j RETURN"},
	{"46", "nat", "-m conntrack --ctstate DNAT,NEW,INVALID,SNAT,UNTRACKED -j RETURN", "-m conntrack --ctstate INVALID,NEW,UNTRACKED,SNAT,DNAT -j RETURN"},
	{"46", "nat", `-m comment --comment "only"`, "-m comment --comment only"},
	{"46", "nat", "! -i cbr0 -m addrtype ! --dst-type LOCAL -j RETURN", ""},
	{"46", "nat", "-p sctp -m sctp --dport 9 -j RETURN", ""},
	{"46", "nat", "-p udp -m udp ! --dport 9:10 -j RETURN", ""},
	{"46", "nat", "-p udp -m udp --sport 9:10 -j RETURN", ""},
	{"46", "nat", "-p udp --dport 9 -j RETURN", "-p udp -m udp --dport 9 -j RETURN"},
	{"46", "nat", "-p tcp -m tcp --dport 0:32767 -j OTHER", ""},
	{"46", "nat", "-p tcp -m tcp --dport 32768:65535 -j OTHER", ""},
	{"46", "nat", "! -p udp -o eth0 -j RETURN", "-o eth0 ! -p udp -j RETURN"},
	{"4", "nat", "-s 127.0.0.0/8", ""},
	{"4", "nat", "-d 10.0.0.0/0 -j RETURN", "-j RETURN"},
	{"4", "nat", "-d 10.1.2.3/24 -j RETURN", "-d 10.1.2.0/24 -j RETURN"},
	{"46", "nat", "-j ACCEPT", ""},
	{"4", "filter", "-p tcp -j REJECT", "-p tcp -j REJECT --reject-with icmp-port-unreachable"},
	{"6", "filter", "-p tcp -j REJECT", "-p tcp -j REJECT --reject-with icmp6-port-unreachable"},
	{"46", "filter", `-m addrtype --dst-type LOCAL -m tcp -p tcp --dport 30080 -m comment --comment "a b" -j DROP`,
		`-p tcp -m addrtype --dst-type LOCAL -m tcp --dport 30080 -m comment --comment "a b" -j DROP`},
}

// familyDigits are how the tables of this package name a family.
var familyDigits = map[service.Family]string{service.IPv4: "4", service.IPv6: "6"}

func TestSavePrintsCanonicalText(t *testing.T) {
	for _, family := range service.Families {
		for _, c := range canonical {
			if !strings.Contains(c.family, familyDigits[family]) {
				continue
			}
			k := NewKernel(family)
			input := fmt.Sprintf("*%s\n:OTHER - [0:0]\n:C - [0:0]\n-A C %s\nCOMMIT\n", c.table, c.written)
			if err := k.Restore(context.Background(), []byte(input)); err != nil {
				t.Errorf("%v %s: %v", family, c.written, err)
				continue
			}
			want := c.saved
			if want == "" {
				want = c.written
			}
			if got := rulesOf(k, iptables.Table(c.table), "C"); got != want {
				t.Errorf("%v: got  %s\nwant %s", family, got, want)
			}
		}
	}
}

func TestSavedTableRestoresToItself(t *testing.T) {
	k := restored(t, strings.Join([]string{
		"*nat", ":ZULU - [0:0]", ":ALPHA - [0:0]",
		`-A ZULU -m comment --comment "a \"b\"" -p tcp -m tcp --dport 80 -j ALPHA`,
		"-A PREROUTING -j ZULU", "COMMIT", "",
	}, "\n"))
	want := strings.Join([]string{
		"# Generated by iptables-save (memory)", "*nat",
		":PREROUTING ACCEPT [0:0]", ":INPUT ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", ":POSTROUTING ACCEPT [0:0]",
		":ALPHA - [0:0]", ":ZULU - [0:0]",
		"-A PREROUTING -j ZULU",
		`-A ZULU -p tcp -m comment --comment "a \"b\"" -m tcp --dport 80 -j ALPHA`,
		"COMMIT", "# Completed", "",
	}, "\n")
	saved, err := k.Save(context.Background(), iptables.NAT)
	if err != nil {
		t.Fatal(err)
	}
	if string(saved) != want {
		t.Fatalf("got\n%s\nwant\n%s", saved, want)
	}
	again := restored(t, string(saved))
	if resaved, err := again.Save(context.Background(), iptables.NAT); err != nil || string(resaved) != want {
		t.Errorf("after restoring what was saved: error %v, got\n%s", err, resaved)
	}
}

func TestSaveOfUnknownTableIsRefused(t *testing.T) {
	if _, err := NewKernel(service.IPv4).Save(context.Background(), "raw"); err == nil {
		t.Error("table raw was saved")
	}
}
