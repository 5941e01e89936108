package harness

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// wares is a table with one of each kind: a set, a map, elements, rules with and without counters,
// and a set and a map that packets fill.
const wares = `table inet wares {
	set ports { type inet_service; elements = { 9, 99 } }
	map verdicts { type inet_service : verdict; elements = { 7 : drop } }
	set seen { type ipv4_addr; size 100; flags dynamic,timeout; timeout 1h; }
	map asked { type ipv4_addr : inet_service; size 100; flags dynamic,timeout; timeout 1h; }
	chain output {
		type filter hook output priority 5;
		tcp dport @ports counter drop
		meta l4proto tcp counter update @seen { ip saddr } update @asked { ip saddr : tcp dport } accept comment "all the rest"
	}
}
`

// With nft alone, traffic leaves no trace, and every write does.
func TestNFTablesRulesTellAWriteFromTraffic(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	b := netnstest.Serve(t, host.Namespace, "b", netip.MustParseAddrPort("127.0.0.1:0"))
	feed(t, host, wares, "nft", "-f", "-")
	first := saveRules(t, host)
	if first.Traces() == 0 || first.Counted() != 0 {
		t.Errorf("%d traces, %d counted; want some and none", first.Traces(), first.Counted())
	}
	if _, err := host.Ask(t.Context(), "tcp", b.Addr()); err != nil {
		t.Fatal(err)
	}
	second := saveRules(t, host)
	if err := second.Untouched(first); err != nil || second.Counted() != 1 {
		t.Errorf("after traffic: %d rules counted, %v", second.Counted(), err)
	}
	for _, c := range []struct{ write, want string }{
		{"add element inet wares ports { 100 }", `+ nft inet wares set ports {"element":100}`},
		{"delete element inet wares ports { 100 }", ""},
		{"add element inet wares verdicts { 8 : accept }", `+ nft inet wares map verdicts {"element":[8,{"accept":null}]}`},
		{"delete element inet wares verdicts { 8 }", ""},
		{"flush chain inet wares output; add rule inet wares output tcp dport @ports counter drop; " +
			`add rule inet wares output meta l4proto tcp counter update @seen { ip saddr } update @asked { ip saddr : tcp dport } accept comment "all the rest"`, "1 rules were written again"},
		{"delete table inet wares", `- nft inet wares {"table":{}}`},
	} {
		feed(t, host, c.write, "nft", "-f", "-")
		switch err := saveRules(t, host).Untouched(second); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.write, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.write, err, c.want)
		}
	}
}

// A set that was deleted and added again looks the same, but has another handle.
func TestNFTablesRulesTellASetMadeAnew(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	const set = "add table ip wares; add set ip wares ports { type inet_service; elements = { 9 } }"
	feed(t, host, set, "nft", "-f", "-")
	before := saveRules(t, host)
	feed(t, host, "delete set ip wares ports; "+set, "nft", "-f", "-")
	if err := saveRules(t, host).Untouched(before); err == nil || !strings.Contains(err.Error(), "written again: nft ip wares set ports") {
		t.Errorf("after the set was made anew: %v", err)
	}
}

func TestReadNFTablesRejectsWhatItDoesNotKnow(t *testing.T) {
	for listing, want := range map[string]string{
		`not JSON`: "invalid character",
		`{"nftables": [{"table": {"family": "ip", "name": "wares"}}]}`: "its handle",
	} {
		r := newRules()
		if err := r.readNFTables([]byte(listing)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", listing, err, want)
		}
	}
}
