// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// TestIPTRules_Rendered: every rule in the golden files of the renderer is understood.
func TestIPTRules_Rendered(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "dataplane", "iptables", "render", "testdata", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if rule, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "  "); ok && rule != "(empty)" {
				rules++
				if err := understood(rule, nil); err != nil {
					t.Errorf("%s: %s: %v", filepath.Base(file), rule, err)
				}
			}
		}
	}
	if rules < 200 {
		t.Errorf("%d rules in %d files, want 200 or more", rules, len(files))
	}
}

// understood returns an error if a rule cannot be evaluated. Its target may be any chain.
func understood(text string, sets map[string]ipSet) error {
	r := newIPTRules(nil, nil)
	r.sets = sets
	rule := rules.Parse(text)
	b := iptBranch{src: netip.MustParseAddrPort("10.0.0.1:1"), dst: netip.MustParseAddrPort("10.0.0.2:80"), probability: 1}
	_, err := r.chance(&rule, &b)
	if name := rule.Target.Name; strings.HasPrefix(name, "KUBE-") {
		r.chain("nat", name)
	}
	w := iptWalk{rules: r}
	w.apply(iptCall{table: "nat"}, &rule.Target, b, 0)
	return errors.Join(err, w.err, checkTarget(&rule.Target))
}

// TestIPTRules_Unknown: a rule that is not understood is an error, never a guess.
func TestIPTRules_Unknown(t *testing.T) {
	for _, text := range []string{
		"-m set --match-set x src -j DROP", "-j NFLOG", "-o eth0 -j DROP", "-m conntrack --ctstate UNTRACKED -j DROP",
		"-s nonsense -j DROP", "-m addrtype --dst-type BROADCAST -j DROP", "-m mark --mark x -j DROP", "-p tcp -m tcp --dport a:b",
		"-j KUBE-MISSING", "-s 10.9.9.9/32 -m time --timestart 08:00:00 -j DROP", "-j REJECT --tee",
	} {
		object := dataplane.Object{ID: dataplane.ID{Container: "nat", Name: "PREROUTING"}, Body: text}
		rules := newIPTRules([]dataplane.Object{object}, nil)
		ways, err := rules.ways(packet{
			Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("10.0.0.2:80"), In: "eth0",
		})
		if err == nil {
			t.Errorf("%s: %v, want an error", text, ways)
		}
	}
}

// TestIPTRules_PacketPath follows one packet through chains of both tables. Want is the end of its path.
func TestIPTRules_PacketPath(t *testing.T) {
	const packetFrom, packetTo = "10.0.0.1:1", "10.0.0.2:80"
	for _, c := range []struct{ name, rules, want string }{
		{"nothing", "", "untouched 10.0.0.2:80"},
		{"a comparison that fails", "nat PREROUTING -d 10.0.0.3/32 -j DNAT --to-destination 10.0.0.9:8080", "untouched 10.0.0.2:80"},
		{"a negation", "nat PREROUTING ! -d 10.0.0.3/32 -j DNAT --to-destination 10.0.0.9:8080", "delivered 10.0.0.9:8080"},
		{"return and goto", `nat PREROUTING -j KUBE-A
nat PREROUTING -j DNAT --to-destination 10.0.0.8:1
nat KUBE-A -g KUBE-B
nat KUBE-A -j DNAT --to-destination 10.0.0.9:2
nat KUBE-B -j RETURN
nat KUBE-B -j DNAT --to-destination 10.0.0.9:3`, "delivered 10.0.0.8:1"},
		{"accept ends the table only", "nat PREROUTING -j ACCEPT\nnat PREROUTING -j DNAT --to-destination 10.0.0.9:2\nfilter FORWARD -j DROP", "dropped 10.0.0.2:80"},
		{"reject", "filter FORWARD -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable", "refused 10.0.0.2:80"},
		{"a mark asks for masquerading", `nat PREROUTING -j MARK --set-xmark 0x4000/0x4000
nat POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
nat POSTROUTING -j MARK --set-xmark 0x4000/0x0
nat POSTROUTING -m mark --mark 0x4000/0x4000 -j RETURN
nat POSTROUTING -j MASQUERADE --random-fully`, "untouched 10.0.0.2:80 masqueraded"},
		{"to the node itself", "nat PREROUTING -j DNAT --to-destination 192.168.0.2:8080\nfilter FORWARD -j DROP\nfilter INPUT -m conntrack --ctstate DNAT -m addrtype --dst-type LOCAL -j REJECT", "refused 192.168.0.2:8080"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bodies := make(map[dataplane.ID][]string)
			for line := range strings.Lines(c.rules) {
				words := strings.SplitN(strings.TrimSpace(line), " ", 3)
				id := dataplane.ID{Container: words[0], Name: words[1]}
				bodies[id] = append(bodies[id], words[2])
			}
			var objects []dataplane.Object
			for id, body := range bodies {
				objects = append(objects, dataplane.Object{ID: id, Body: strings.Join(body, "\n")})
			}
			rules := newIPTRules(objects, []netip.Addr{netip.MustParseAddr("192.168.0.2")})
			ways, err := rules.ways(packet{
				Src: netip.MustParseAddrPort(packetFrom), Dst: netip.MustParseAddrPort(packetTo), Protocol: service.TCP, In: "eth0",
			})
			if err != nil || len(ways) != 1 {
				t.Fatalf("%v, %v: must be one way", ways, err)
			}
			got := string(ways[0].Verdict) + " " + ways[0].To.String()
			if ways[0].Masqueraded {
				got += " masqueraded"
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
