// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// FuzzRecover reads any rules as leftovers of a previous process in a shared chain. A recovered element is written as a
// rule that is recovered as the same element.
func FuzzRecover(f *testing.F) {
	f.Add("KUBE-SERVICES", `-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -m comment --comment "ns/web cluster IP" -j KUBE-SVC-AAAAAAAAAAAAAAAA`)
	f.Add("KUBE-NODEPORTS", "-p udp -m udp --dport 30053 -j KUBE-EXT-AAAAAAAAAAAAAAAA\n! -d 127.0.0.0/8")
	f.Add("KUBE-SERVICES", "-d ::/0 -j\n-d -p -j -j -j\n! ! ! -j X\n-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")
	f.Fuzz(func(t *testing.T, chain, rules string) {
		var text strings.Builder
		text.WriteString("*nat\n:" + chain + " - [0:0]\n")
		for line := range strings.SplitSeq(rules, "\n") {
			text.WriteString("-A " + chain + " " + line + "\n")
		}
		s, err := parseSave(render.NAT, []byte(text.String()+"COMMIT\n"))
		if err != nil {
			return
		}
		o := s.object(chain)
		if o == nil {
			return
		}
		elements, _ := tree.New(service.IPv4, render.Containers).Recover([]*dataplane.Object{o})
		if len(elements) > strings.Count(rules, "\n")+1 {
			t.Errorf("%d elements of %q", len(elements), rules)
		}
		layout := tree.New(service.IPv4, render.Containers)
		names := map[dataplane.ID]bool{}
		for _, e := range elements {
			names[e.ID] = true
			layout.Put(e, service.Key{Namespace: "ns", Name: "web"})
		}
		var composed []*dataplane.Object
		for _, c := range layout.Flush() {
			composed = append(composed, c.Object)
		}
		again, _ := layout.Recover(composed)
		for _, e := range again {
			if !names[e.ID] {
				t.Errorf("%q was made up of %q", e.ID, rules)
			}
			delete(names, e.ID)
		}
		if len(names) > 0 {
			t.Errorf("%d were lost of %q: %v", len(names), rules, names)
		}
	})
}

// FuzzTexts reads any text as other output of the programs and the kernel, such as lists of clients and error messages.
func FuzzTexts(f *testing.F) {
	f.Add("src=10.0.0.1 ttl: 64 last_seen: 4296245811 oldest_pkt: 1 4296245811\n", "10.0.0.1")
	f.Add("1: FLOCK ADVISORY WRITE 17 fd:00:4711 0 EOF\niptables-restore: line 8 failed\n6.1.0-18-amd64", "fd00::1")
	f.Add("src=10.0.0.1 ttl: 64 last_seen: 18446744073709551615 x", "10.0.0.1")
	f.Add("36 35 98:0 /mnt1 /run rw - ext3 /dev/root rw\nline: 99999999999999999999", "::")
	f.Fuzz(func(t *testing.T, text, client string) {
		addr, _ := netip.ParseAddr(client)
		now := clock{uptime: time.Hour, tick: 4 * time.Millisecond}
		if age, known, err := seenIn(strings.NewReader(text), addr, now); age < 0 || known && err != nil {
			t.Errorf("seen %v ago, %v", age, err)
		}
		if line := (&failure{output: text}).line(); line < 0 {
			t.Errorf("line %d", line)
		}
		if pid := lockHolder(strings.NewReader(text), 0xfd00, 4711); strings.ContainsAny(pid, " \n") {
			t.Errorf("process %q", pid)
		}
		if point := mountOf(strings.NewReader(text), "/run/xtables.lock"); point != "" && !strings.HasPrefix("/run/xtables.lock", strings.TrimSuffix(point, "/")) {
			t.Errorf("mounted at %q", point)
		}
		if v := parseKernel(text); v.less(version{}) && !v.less(randomFullyKernel) {
			t.Errorf("version %v", v)
		}
	})
}
