package kernel

import (
	"maps"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// TestKernelRulesCountTheSame: netlink and iptables-save show the same counters of the same rules, for all kinds of
// frontends and protocols.
func TestKernelRulesCountTheSame(t *testing.T) {
	onKernels(t, func(k *kernelTest) {
		if k.variant != NFT {
			return
		}
		var changes []dataplane.Change
		for _, o := range rendertest.IPTablesNode(k.family, rendertest.IPTablesTrees(k.family)) {
			changes = append(changes, changeOf(service.Node, nil, &o))
		}
		k.write(changes...)
		if err := k.writer.announcedFrom(k.Context()); err != nil {
			k.Fatal(err)
		}
		listed, saved := k.writer.newMeter(), k.writer.newMeter()
		if err := listed.list(k.Context()); err != nil {
			k.Fatal(err)
		}
		if err := saved.save(k.Context(), k.tool, 0); err != nil {
			k.Fatal(err)
		}
		places := 0
		for chain, want := range saved.live {
			if got := listed.live[chain]; !maps.Equal(got, want) {
				k.Errorf("%v: netlink lists %v, and iptables-save prints %v", chain, got, want)
			}
			places += len(want)
		}
		if !maps.Equal(listed.ports, saved.ports) || !maps.Equal(listed.served, saved.served) || !maps.Equal(listed.endpoints, saved.endpoints) {
			k.Errorf("netlink lists %v, and iptables-save prints %v", listed, saved)
		}
		if len(saved.ports) < 300 || places < 500 || len(saved.served) < 700 {
			k.Errorf("%d service ports, %d frontends and %d places", len(saved.ports), len(saved.served), places)
		}
	})
}

// TestRulesOfOlderPrograms: these match ports with an extension, and IPv4 translates with another revision.
func TestRulesOfOlderPrograms(t *testing.T) {
	match := func(name string, info ...byte) []byte {
		return netlink.AppendBytes(netlink.AppendText(nil, compatName, name), compatInfo, info)
	}
	for name, info := range map[string][]byte{"tcp": {0, 0, 255, 255, 80, 0, 80, 0}, "sctp": {80, 0, 80, 0, 0, 0, 255, 255}} {
		var c counter
		if c.match(match(name, info...)); c.frontend.Port != 80 {
			t.Errorf("%s: port %d (on a little-endian machine)", name, c.frontend.Port)
		}
	}
	var c counter
	c.match(match("udp", 0, 0, 255, 255, 80, 0, 90, 0)) // a range
	c.match(match("udp", 1))
	c.match(match("comment", 0, 0, 0, 0, 80, 0, 80, 0))
	if c.frontend.Port != 0 {
		t.Errorf("port %d", c.frontend.Port)
	}
	info := []byte{1, 0, 0, 0, 3, 0, 0, 0, 10, 0, 0, 5, 10, 0, 0, 5, 0x1f, 0x90, 0x1f, 0x90}
	if got, want := natEndpoint(0, info), netip.MustParseAddrPort("10.0.0.5:8080"); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, revision := range []uint32{0, 1, 2} {
		if got := natEndpoint(revision, info[:12]); got.IsValid() {
			t.Errorf("revision %d: got %v of a part", revision, got)
		}
	}
}

// FuzzCounters: rules of any form do no harm.
func FuzzCounters(f *testing.F) {
	f.Add([]byte{}, "[1:2] -A KUBE-SVC-AAAAAAAAAAAAAAAA -p tcp -j DNAT --to-destination 10.0.0.5:8080")
	f.Add([]byte{8, 0, 4, 0, 1, 2, 3, 4}, "[x -A KUBE-SERVICES -d 10.0.0.1/32 -p tcp -m tcp --dport -j")
	f.Fuzz(func(t *testing.T, expressions []byte, line string) {
		c := announcedCounter(netlink.AppendBytes(nil, unix.NFTA_RULE_EXPRESSIONS, expressions))
		name, printed, _ := printedCounter(line)
		for _, c := range []counter{c, printed} {
			for _, chain := range []string{name, "KUBE-SVC-AAAAAAAAAAAAAAAA", render.ChainServices, render.ChainNodePorts} {
				c.at(render.ChainID(render.Filter, chain))
				c.dispatches(render.ChainID(render.NAT, chain))
			}
		}
	})
}
