// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// otherMode owns a chain and a hook, and shares one chain and one hook with iptables mode.
func otherMode() Ownership {
	hooks := []render.Hook{
		render.NewHook(render.NAT, "OUTPUT", render.CommentPortals, render.ChainServices),
		render.NewHook(render.NAT, "OUTPUT", "of the other", "KUBE-OTHER"),
	}
	for i := range hooks {
		hooks[i].Row = i + 1
	}
	return Ownership{
		Owns: func(table render.Table, chain string) bool {
			return table == render.NAT && (chain == render.ChainServices || chain == "KUBE-OTHER")
		},
		Hooks: hooks,
	}
}

// bothModes is table nat with chains and hooks of both modes, and of another program.
var bothModes = savedTable(render.NAT,
	":OUTPUT ACCEPT [0:0]", ":KUBE-SERVICES - [0:0]", ":KUBE-OTHER - [0:0]", ":KUBE-SVC-A - [0:0]", ":MINE - [0:0]",
	"-A OUTPUT "+render.NewHook(render.NAT, "OUTPUT", render.CommentPortals, render.ChainServices).Text(),
	"-A OUTPUT "+render.NewHook(render.NAT, "OUTPUT", "of the other", "KUBE-OTHER").Text(),
	"-A KUBE-SERVICES -j KUBE-SVC-A", "-A KUBE-OTHER -j KUBE-SERVICES")

func TestOwnership(t *testing.T) {
	own, other := DefaultOwnership(), otherMode()
	for name, c := range map[string]struct {
		ownership Ownership
		chains    string
		hooks     int
	}{
		"one":           {own, "KUBE-SERVICES KUBE-SVC-A", 1},
		"the other":     {other, "KUBE-SERVICES KUBE-OTHER", 2},
		"both":          {own.With(other), "KUBE-SERVICES KUBE-OTHER KUBE-SVC-A", 2},
		"one alone":     {own.Without(other), "KUBE-SVC-A", 0},
		"other alone":   {other.Without(own), "KUBE-OTHER", 1},
		"nothing":       {own.Without(own), "", 0},
		"one with self": {own.With(own), "KUBE-SERVICES KUBE-SVC-A", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parseSave(render.NAT, []byte(bothModes))
			if err != nil {
				t.Fatal(err)
			}
			var chains []string
			for _, chain := range s.chains {
				if c.ownership.Owns(render.NAT, chain) {
					chains = append(chains, chain)
				}
			}
			if got := strings.Join(chains, " "); got != c.chains {
				t.Errorf("owns %q, want %q", got, c.chains)
			}
			if got := len(c.ownership.hooksIn(s)); got != c.hooks {
				t.Errorf("finds %d hooks, want %d", got, c.hooks)
			}
		})
	}
}

// TestWriter_ReadsOnlyOwned: Read returns only objects that the writer's ownership includes, even if other names look
// similar.
func TestWriter_ReadsOnlyOwned(t *testing.T) {
	tool := &scriptedTool{saves: map[render.Table]string{render.NAT: bothModes}}
	read := func(config WriterConfig) (names []string) {
		objects, err := NewWriter(service.IPv4, tool, config).Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			names = append(names, o.ID.Name)
		}
		return names
	}
	got := strings.Join(read(WriterConfig{Ownership: otherMode()}), "|")
	want := "KUBE-OTHER|KUBE-SERVICES|" +
		`01 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES|02 -m comment --comment "of the other" -j KUBE-OTHER`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = strings.Join(read(WriterConfig{}), "|")
	want = "KUBE-SERVICES|KUBE-SVC-A|" + `10 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`
	if got != want {
		t.Errorf("by default got %s, want %s", got, want)
	}
}

// TestCleanup_OneModeLeavesAnother: the cleanup of one mode removes no objects that another mode owns.
func TestCleanup_OneModeLeavesAnother(t *testing.T) {
	tool := &scriptedTool{saves: map[render.Table]string{render.NAT: bothModes}}
	summary, err := Cleanup(t.Context(), service.IPv4, tool, otherMode().Without(DefaultOwnership()), false)
	if err != nil {
		t.Fatal(err)
	}
	if summary.Hooks != 1 || summary.Chains[render.NAT] != 1 {
		t.Errorf("removed %+v, want one hook and one chain", summary)
	}
	for _, input := range tool.inputs {
		const want = "*nat\n:KUBE-OTHER - [0:0]\n-D OUTPUT -m comment --comment \"of the other\" -j KUBE-OTHER\n-X KUBE-OTHER\nCOMMIT\n"
		if input != want {
			t.Errorf("got input\n%s\nwant\n%s", input, want)
		}
	}
	if len(tool.inputs) != 1 {
		t.Errorf("%d inputs, want one", len(tool.inputs))
	}
}
