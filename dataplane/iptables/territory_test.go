package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// neighbour is another mode: it has a chain and a hook of its own, and shares one chain and one
// hook with iptables mode.
func neighbour() Territory {
	hooks := []Hook{
		hook(NAT, "OUTPUT", commentPortals, chainServices),
		hook(NAT, "OUTPUT", "of the other", "KUBE-OTHER"),
	}
	for i := range hooks {
		hooks[i].Row = i + 1
	}
	return Territory{
		Owns: func(table Table, chain string) bool {
			return table == NAT && (chain == chainServices || chain == "KUBE-OTHER")
		},
		Hooks: hooks,
	}
}

// bothModes is table nat with chains and hooks of both modes, and of another program.
var bothModes = savedTable(NAT,
	":OUTPUT ACCEPT [0:0]", ":KUBE-SERVICES - [0:0]", ":KUBE-OTHER - [0:0]", ":KUBE-SVC-A - [0:0]", ":MINE - [0:0]",
	"-A OUTPUT "+hook(NAT, "OUTPUT", commentPortals, chainServices).Text(),
	"-A OUTPUT "+hook(NAT, "OUTPUT", "of the other", "KUBE-OTHER").Text(),
	"-A KUBE-SERVICES -j KUBE-SVC-A", "-A KUBE-OTHER -j KUBE-SERVICES")

func TestTerritories(t *testing.T) {
	own, other := OwnTerritory(), neighbour()
	for name, c := range map[string]struct {
		territory Territory
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
			s, err := parseSave(NAT, []byte(bothModes))
			if err != nil {
				t.Fatal(err)
			}
			var chains []string
			for _, chain := range s.chains {
				if c.territory.Owns(NAT, chain) {
					chains = append(chains, chain)
				}
			}
			if got := strings.Join(chains, " "); got != c.chains {
				t.Errorf("owns %q, want %q", got, c.chains)
			}
			if got := len(c.territory.hooksIn(s)); got != c.hooks {
				t.Errorf("finds %d hooks, want %d", got, c.hooks)
			}
		})
	}
}

// TestWriterReadsItsTerritory and nothing else, even if the names look like ours.
func TestWriterReadsItsTerritory(t *testing.T) {
	tool := &scriptedTool{saves: map[Table]string{NAT: bothModes}}
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
	got := strings.Join(read(WriterConfig{Territory: neighbour()}), "|")
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

func TestCleanupOfOneTerritoryLeavesAnother(t *testing.T) {
	tool := &scriptedTool{saves: map[Table]string{NAT: bothModes}}
	summary, err := Cleanup(t.Context(), service.IPv4, tool, neighbour().Without(OwnTerritory()), false)
	if err != nil {
		t.Fatal(err)
	}
	if summary.Hooks != 1 || summary.Chains[NAT] != 1 {
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

func TestOwnsChain(t *testing.T) {
	for _, test := range []struct {
		table Table
		name  string
		want  bool
	}{
		{NAT, "KUBE-SERVICES", true},
		{NAT, "KUBE-SVC-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-SVC-TS-AC1E0000-20", true},
		{NAT, "KUBE-SVC-HAIRPIN", true},
		{NAT, "KUBE-SVL-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-SEP-SXIVWICOYRO3J4NJ", true},
		{NAT, "KUBE-FW-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-EXT-XPGD46QRK7WJZT7O", true},
		{NAT, "KUBE-PROXY-CANARY", true},
		{NAT, "KUBE-FORWARD", false},
		{NAT, "KUBE-MARK-DROP", false},
		{NAT, "KUBE-KUBELET-CANARY", false},
		{NAT, "POSTROUTING", false},
		{Filter, "KUBE-EXTERNAL-SERVICES", true},
		{Filter, "KUBE-EXT-NODEPORTS", true},
		{Filter, "KUBE-SVC-TX-01020300-24", true},
		{Filter, "KUBE-PROXY-FIREWALL", true},
		{Filter, "KUBE-SEP-SXIVWICOYRO3J4NJ", false},
		{Filter, "KUBE-FIREWALL", false},
		{Filter, "KUBE-POSTROUTING", false},
		{Mangle, "KUBE-PROXY-CANARY", true},
		{Mangle, "KUBE-IPTABLES-HINT", false},
		{Mangle, "KUBE-SERVICES", false},
		{"raw", "KUBE-SERVICES", false},
	} {
		if got := OwnsChain(test.table, test.name); got != test.want {
			t.Errorf("OwnsChain(%s, %s) = %t, want %t", test.table, test.name, got, test.want)
		}
	}
	if !Shared("KUBE-FIREWALL") || Shared("KUBE-FORWARD") {
		t.Error("KUBE-FIREWALL alone is shared")
	}
}

// TestHookRows has the rules of kube-proxy v1.36, word for word.
func TestHookRows(t *testing.T) {
	const (
		isNew   = "-m conntrack --ctstate NEW "
		remark  = "-m comment --comment "
		portals = remark + `"kubernetes service portals" -j KUBE-SERVICES`
		outside = isNew + remark + `"kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`
		balance = isNew + remark + `"kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`
	)
	want := []string{
		"01 filter/INPUT " + outside,
		"02 filter/FORWARD " + outside,
		"03 filter/INPUT " + remark + `"kubernetes health check service ports" -j KUBE-NODEPORTS`,
		"04 filter/FORWARD " + isNew + portals,
		"05 filter/OUTPUT " + isNew + portals,
		"06 filter/FORWARD " + remark + `"kubernetes forwarding rules" -j KUBE-FORWARD`,
		"07 filter/INPUT " + balance,
		"08 filter/OUTPUT " + balance,
		"09 filter/FORWARD " + balance,
		"10 nat/OUTPUT " + portals,
		"11 nat/PREROUTING " + portals,
		"12 nat/POSTROUTING " + remark + `"kubernetes postrouting rules" -j KUBE-POSTROUTING`,
		"13 filter/INPUT -j KUBE-FIREWALL",
		"14 filter/OUTPUT -j KUBE-FIREWALL",
	}
	var got []string
	for _, h := range HookRows() {
		row, text, _ := strings.Cut(h.ID().Name, " ")
		got = append(got, row+" "+h.ID().Container+" "+text)
		if o := h.Object(); o.Body != text || o.Refs()[0].Container != string(h.Table) || o.Refs()[0].Name != h.Target {
			t.Errorf("row %d: object %+v", h.Row, o)
		}
		if !slices.Equal(h.Rule[len(h.Rule)-2:], []string{"-j", h.Target}) {
			t.Errorf("row %d: rule %q does not jump to %s", h.Row, h.Rule, h.Target)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestHookOrder is the order on an empty node, where each row is inserted above the earlier ones.
func TestHookOrder(t *testing.T) {
	chains := map[string][]string{}
	for _, h := range HookRows() {
		chain := string(h.Table) + "/" + h.Chain
		chains[chain] = slices.Insert(chains[chain], 0, h.Target)
	}
	for chain, want := range map[string]string{
		"filter/INPUT":    "KUBE-FIREWALL KUBE-PROXY-FIREWALL KUBE-NODEPORTS KUBE-EXTERNAL-SERVICES",
		"filter/FORWARD":  "KUBE-PROXY-FIREWALL KUBE-FORWARD KUBE-SERVICES KUBE-EXTERNAL-SERVICES",
		"filter/OUTPUT":   "KUBE-FIREWALL KUBE-PROXY-FIREWALL KUBE-SERVICES",
		"nat/OUTPUT":      "KUBE-SERVICES",
		"nat/PREROUTING":  "KUBE-SERVICES",
		"nat/POSTROUTING": "KUBE-POSTROUTING",
	} {
		if got := strings.Join(chains[chain], " "); got != want {
			t.Errorf("%s: %s, want %s", chain, got, want)
		}
	}
}
