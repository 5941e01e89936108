// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

func TestParseSave(t *testing.T) {
	s, err := parseSave(render.NAT, []byte(savedTable(render.NAT,
		":PREROUTING ACCEPT [12:3456]",
		":KUBE-SERVICES - [0:0]",
		":KUBE-SVC-A - [0:0]",
		":KUBE-SVC-B - [0:0]",
		`-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		`-A KUBE-SERVICES -d 10.0.0.1/32 -m comment --comment "a \"-j KUBE-SVC-A\"" -j KUBE-SVC-B`,
		`-A KUBE-SERVICES -d 10.0.0.2/32 -g KUBE-SVC-B`,
		`-A KUBE-SERVICES -j MASQUERADE`,
		`-A KUBE-SVC-A`,
	)))
	if err != nil {
		t.Fatal(err)
	}
	got := s.object("KUBE-SERVICES")
	wantBody := strings.Join([]string{
		`-d 10.0.0.1/32 -m comment --comment "a \"-j KUBE-SVC-A\"" -j KUBE-SVC-B`,
		`-d 10.0.0.2/32 -g KUBE-SVC-B`,
		`-j MASQUERADE`,
	}, "\n")
	if got.Body != wantBody {
		t.Errorf("body:\n%s\nwant:\n%s", got.Body, wantBody)
	}
	// Each chain once. Extensions are no chains, and a comment is no jump.
	if want := []dataplane.ID{{Container: "nat", Name: "KUBE-SVC-B"}}; !slices.Equal(got.Refs(), want) {
		t.Errorf("refs = %v, want %v", got.Refs(), want)
	}
	if o := s.object("KUBE-SVC-B"); o == nil || o.Body != "" {
		t.Errorf("a chain without rules reads as %+v", o)
	}
	if o := s.object("KUBE-SVC-C"); o != nil {
		t.Errorf("a chain that does not exist reads as %+v", o)
	}
}

// TestParseSave_Nothing: parseSave reads empty output as an empty table.
func TestParseSave_Nothing(t *testing.T) {
	s, err := parseSave(render.NAT, nil)
	if err != nil || len(s.chains) != 0 {
		t.Errorf("got %v, %v; want an empty table", s, err)
	}
}

// TestParseSave_RejectsUnknownText: parseSave rejects other texts with an error that names the table.
func TestParseSave_RejectsUnknownText(t *testing.T) {
	for name, printed := range map[string]string{
		"cut off":            "*nat\n:KUBE-SERVICES - [0:0]\n",
		"another table":      savedTable(render.Filter, ":INPUT ACCEPT [0:0]"),
		"no table line":      ":KUBE-SERVICES - [0:0]\nCOMMIT\n",
		"counters":           savedTable(render.NAT, ":A - [0:0]", "[1:2] -A A -j ACCEPT"),
		"chain without rest": savedTable(render.NAT, ":A"),
		"made by nft":        "# Table `nat' is incompatible, use 'nft' tool.\n",
	} {
		if _, err := parseSave(render.NAT, []byte(printed)); err == nil || !strings.Contains(err.Error(), "nat") {
			t.Errorf("%s: error %v, want one that names the table", name, err)
		}
	}
}

func FuzzParseSave(f *testing.F) {
	f.Add(savedTable(render.NAT, ":A - [0:0]", `-A A -m comment --comment "x" -j A`))
	f.Add("*nat\n-A\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, printed string) {
		s, err := parseSave(render.NAT, []byte(printed))
		if err != nil {
			return
		}
		for _, chain := range s.chains {
			if s.object(chain) == nil {
				t.Errorf("chain %q was read but does not exist", chain)
			}
		}
	})
}

// largeTable prints nat with chains of ten rules each.
func largeTable(chains int) []byte {
	var declared, rules strings.Builder
	for i := range chains {
		fmt.Fprintf(&declared, ":KUBE-SVC-%016d - [0:0]\n", i)
		for j := range 10 {
			fmt.Fprintf(&rules, "-A KUBE-SVC-%016d -p tcp -m comment --comment \"shop/blue -> 10.1.2.3:80\" "+
				"-m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.%d.%d.%d:80\n", i, j, i>>8, i&255)
		}
	}
	return []byte("*nat\n" + declared.String() + rules.String() + "COMMIT\n")
}

// BenchmarkRead measures one audit without iptables-save: 5,000 chains of ten rules.
func BenchmarkRead(b *testing.B) {
	tool := &scriptedTool{saves: map[render.Table]string{render.NAT: string(largeTable(5000))}}
	w := NewWriter(service.IPv4, tool, WriterConfig{})
	for b.Loop() {
		objects, err := w.Read(b.Context())
		if err != nil || len(objects) != 5000 {
			b.Fatal(len(objects), err)
		}
	}
}

// BenchmarkInput measures the first write without iptables-restore: 5,000 chains of ten rules.
func BenchmarkInput(b *testing.B) {
	s, err := parseSave(render.NAT, largeTable(5000))
	if err != nil {
		b.Fatal(err)
	}
	var changes []dataplane.Change
	for _, name := range s.chains {
		changes = append(changes, changeOf(blue, nil, s.object(name)))
	}
	for b.Loop() {
		if in := newInput(changes); in.rules != 50_000 {
			b.Fatal(in.rules)
		}
	}
}
