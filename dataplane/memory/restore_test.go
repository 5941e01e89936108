package memory

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// refusals are inputs that the tools refuse too, each with the line that is
// named. They run on a nat table that holds OLD -> LEAF.
var refusals = []struct {
	name  string
	input string
	line  int
	words string
}{
	{"jump to a missing chain", "*nat\n:A - [0:0]\n-A A -j MISSING\nCOMMIT\n", 3, "Couldn't load target `MISSING'"},
	{"jump to a built-in chain", "*nat\n:A - [0:0]\n-A A -j PREROUTING\nCOMMIT\n", 3, "PREROUTING"},
	{"append to a missing chain", "*nat\n-A MISSING -j RETURN\nCOMMIT\n", 2, "No chain"},
	{"delete a chain that is jumped to", "*nat\n-X LEAF\nCOMMIT\n", 2, "Too many links"},
	{"delete a chain that holds rules", "*nat\n-X OLD\nCOMMIT\n", 2, "not empty"},
	{"delete a missing chain", "*nat\n-X MISSING\nCOMMIT\n", 2, "No chain"},
	{"delete a built-in chain", "*nat\n-X PREROUTING\nCOMMIT\n", 2, "No chain"},
	{"delete a missing rule", "*nat\n-D OLD -s 10.0.0.1 -j LEAF\nCOMMIT\n", 2, "Bad rule"},
	{"delete behind the end", "*nat\n-D OLD 2\nCOMMIT\n", 2, "Index of deletion"},
	{"insert behind the end", "*nat\n-I OLD 3 -j RETURN\nCOMMIT\n", 2, "Index of insertion"},
	{"name of 29 characters", "*nat\n:ABCDEFGHIJKLMNOPQRSTUVWXYZ012 - [0:0]\nCOMMIT\n", 2, "28 chars max"},
	{"name of a target", "*nat\n:ACCEPT - [0:0]\nCOMMIT\n", 2, "clash"},
	{"unknown match", "*nat\n-A OLD -m nosuch -j RETURN\nCOMMIT\n", 2, "Couldn't load match `nosuch'"},
	{"unknown option", "*nat\n-A OLD -p tcp -m tcp --nosuch 5 -j RETURN\nCOMMIT\n", 2, `unknown option "--nosuch"`},
	{"option without its match", "*nat\n-A OLD --dport 5 -j RETURN\nCOMMIT\n", 2, `unknown option "--dport"`},
	{"port match without protocol", "*nat\n-A OLD -m tcp --dport 80 -j RETURN\nCOMMIT\n", 2, "requires '-p tcp'"},
	{"stray word", "*nat\n-A OLD -j RETURN extra\nCOMMIT\n", 2, "Bad argument `extra'"},
	{"two targets", "*nat\n-A OLD -j RETURN -j RETURN\nCOMMIT\n", 2, "multiple -j"},
	{"unknown protocol", "*nat\n-A OLD -p foo\nCOMMIT\n", 2, "unknown protocol"},
	{"port too high", "*nat\n-A OLD -p tcp --dport 99999\nCOMMIT\n", 2, "invalid port"},
	{"bad address", "*nat\n-A OLD -d 1.2.3.400\nCOMMIT\n", 2, "not found"},
	{"address of the other family", "*nat\n-A OLD -d fd00::1\nCOMMIT\n", 2, "not found"},
	{"destination of the other family", "*nat\n-A OLD -p tcp -j DNAT --to-destination [fd00::1]:80\nCOMMIT\n", 2, "Bad IP address"},
	{"DNAT without destination", "*nat\n-A OLD -j DNAT\nCOMMIT\n", 2, "--to-destination"},
	{"DNAT to a port without protocol", "*nat\n-A OLD -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n", 2, "Need TCP"},
	{"MARK without a mark", "*nat\n-A OLD -j MARK\nCOMMIT\n", 2, "MARK:"},
	{"statistic without probability", "*nat\n-A OLD -m statistic --mode random\nCOMMIT\n", 2, "--probability"},
	{"probability above one", "*nat\n-A OLD -m statistic --mode random --probability 1.5\nCOMMIT\n", 2, "out of range"},
	{"recent without action", "*nat\n-A OLD -m recent --name X\nCOMMIT\n", 2, "recent:"},
	{"comment without text", "*nat\n-A OLD -m comment\nCOMMIT\n", 2, "comment:"},
	{"comment of 256 characters", "*nat\n-A OLD -m comment --comment " + strings.Repeat("x", 256) + "\nCOMMIT\n", 2, "too long"},
	{"addrtype without type", "*nat\n-A OLD -m addrtype\nCOMMIT\n", 2, "addrtype:"},
	{"inversion of what cannot be", "*nat\n-A OLD ! -j RETURN\nCOMMIT\n", 2, "!"},
	{"DROP in nat", "*nat\n-A OLD -j DROP\nCOMMIT\n", 2, "not intended for filtering"},
	{"REJECT in nat", "*nat\n-A OLD -j REJECT\nCOMMIT\n", 3, "Invalid argument"},
	{"MASQUERADE in filter", "*filter\n:A - [0:0]\n-A A -j MASQUERADE\nCOMMIT\n", 4, "Invalid argument"},
	{"MASQUERADE before routing", "*nat\n-A LEAF -j MASQUERADE\n-A PREROUTING -j OLD\nCOMMIT\n", 4, "Invalid argument"},
	{"DNAT after routing", "*nat\n-A LEAF -p tcp -j DNAT --to-destination 10.0.0.1:80\n-A POSTROUTING -j OLD\nCOMMIT\n", 4, "Invalid argument"},
	{"loop", "*nat\n-A LEAF -j OLD\n-A OUTPUT -j OLD\nCOMMIT\n", 4, "symbolic links"},
	{"accounting object that does not exist", "*nat\n-A OLD -m nfacct --nfacct-name n\nCOMMIT\n", 3, "No such file"},
	{"bad mark", "*nat\n-A OLD -m mark --mark zero\nCOMMIT\n", 2, "mark: bad"},
	{"bad mask", "*nat\n-A OLD -m mark --mark 1/zero\nCOMMIT\n", 2, "mark: bad"},
	{"two marks", "*nat\n-A OLD -j MARK --or-mark 1 --xor-mark 1\nCOMMIT\n", 2, "MARK:"},
	{"mark match without a mark", "*nat\n-A OLD -m mark\nCOMMIT\n", 2, "mark:"},
	{"recent list set and checked", "*nat\n-A OLD -m recent --name X --set --rcheck\nCOMMIT\n", 2, "recent:"},
	{"recent list reaped without seconds", "*nat\n-A OLD -m recent --name X --rcheck --reap\nCOMMIT\n", 2, "recent:"},
	{"recent seconds of zero", "*nat\n-A OLD -m recent --name X --rcheck --seconds 0\nCOMMIT\n", 2, "recent:"},
	{"unknown state", "*nat\n-A OLD -m conntrack --ctstate YOUNG\nCOMMIT\n", 2, "ctstate"},
	{"conntrack without state", "*nat\n-A OLD -m conntrack\nCOMMIT\n", 2, "conntrack:"},
	{"unknown address type", "*nat\n-A OLD -m addrtype --dst-type NEAR\nCOMMIT\n", 2, "addrtype:"},
	{"interface name of 16 characters", "*nat\n-A OLD -i abcdefghijklmnop\nCOMMIT\n", 2, "interface name"},
	{"two exclamation marks", "*nat\n-A OLD ! ! -i lo\nCOMMIT\n", 2, "!"},
	{"exclamation mark at the end", "*nat\n-A OLD -i lo !\nCOMMIT\n", 2, "!"},
	{"option without its value", "*nat\n-A OLD -i\nCOMMIT\n", 2, "requires an argument"},
	{"port range the wrong way", "*nat\n-A OLD -p tcp --dport 2:1\nCOMMIT\n", 2, "portrange"},
	{"unknown way to reject", "*filter\n:A - [0:0]\n-A A -j REJECT --reject-with grace\nCOMMIT\n", 3, "unknown reject type"},
	{"chain line without a policy", "*nat\n:A\nCOMMIT\n", 2, "Bad argument"},
	{"words behind a flush", "*nat\n-F OLD LEAF\nCOMMIT\n", 2, "Bad argument"},
	{"insert at position 0", "*nat\n-I OLD 0 -j RETURN\nCOMMIT\n", 2, "Invalid rule number"},
	{"blanks", "*nat\n  \nCOMMIT\n", 2, "Bad argument"},
	{"unknown table", "*bogus\nCOMMIT\n", 1, "Table does not exist"},
	{"table inside a table", "*nat\n*filter\nCOMMIT\n", 2, "Bad argument"},
	{"rule outside a table", "-A OLD -j RETURN\n", 1, "Bad argument"},
	{"missing commit", "*nat\n:A - [0:0]\n", 3, "COMMIT expected"},
	{"unknown command", "*nat\n-R OLD 1 -j RETURN\nCOMMIT\n", 2, "unknown option"},
	{"unclosed quote", "*nat\n-A OLD -m comment --comment \"x -j RETURN\nCOMMIT\n", 2, "unclosed"},
	{"bad policy", "*filter\n:INPUT MAYBE [0:0]\nCOMMIT\n", 2, "policy"},
}

// stricter names the refusals that the real tools do not share: they cut a long
// comment off, close a quote at the end of the line, and know one more command.
var stricter = map[string]bool{
	"comment of 256 characters": true,
	"unclosed quote":            true,
	"unknown command":           true,
}

const before = "*nat\n:OLD - [0:0]\n:LEAF - [0:0]\n-A OLD -j LEAF\nCOMMIT\n"

func TestRefusedTableLeavesNoTrace(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			k := restored(t, before)
			was := saveAll(t, k)
			err := toolError(t, k.Restore(context.Background(), []byte(c.input)))
			if err.Outcome != dataplane.Rejected || err.Line != c.line || !strings.Contains(err.Output, c.words) {
				t.Errorf("got %v, line %d: %s\nwant rejected, line %d, ... %s ...", err.Outcome, err.Line, err.Output, c.line, c.words)
			}
			if got := saveAll(t, k); got != was {
				t.Errorf("the tables changed:\n%s\nwere\n%s", got, was)
			}
		})
	}
}

func saveAll(t *testing.T, k *Kernel) string {
	t.Helper()
	var all strings.Builder
	for _, table := range tableOrder {
		saved, err := k.Save(context.Background(), table)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(saved)
	}
	return all.String()
}

func TestTablesBeforeTheRefusedOneLand(t *testing.T) {
	k := NewKernel(service.IPv4)
	input := "*filter\n:ONE - [0:0]\nCOMMIT\n*nat\n:TWO - [0:0]\n-A TWO -j MISSING\nCOMMIT\n*mangle\n:THREE - [0:0]\nCOMMIT\n"
	err := toolError(t, k.Restore(context.Background(), []byte(input)))
	if err.Line != 6 {
		t.Errorf("got line %d, want 6", err.Line)
	}
	got := []string{rulesOf(k, "filter", "ONE"), rulesOf(k, "nat", "TWO"), rulesOf(k, "mangle", "THREE")}
	if got[0] != "" || got[1] != "absent" || got[2] != "absent" {
		t.Errorf("got ONE, TWO, THREE = %q, want empty, absent, absent", got)
	}
}

func TestChainLineEmptiesExactlyThatChain(t *testing.T) {
	k := restored(t, before+"*nat\n-A LEAF -s 10.0.0.1 -j RETURN\nCOMMIT\n*nat\n:LEAF - [0:0]\n-A LEAF -s 10.0.0.2 -j RETURN\nCOMMIT\n")
	if got, want := rulesOf(k, "nat", "OLD")+"|"+rulesOf(k, "nat", "LEAF"), "-j LEAF|-s 10.0.0.2/32 -j RETURN"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSameTableMayComeTwice(t *testing.T) {
	k := restored(t, before+"*nat\n:OLD - [0:0]\n:LEAF - [0:0]\n-X OLD\n-X LEAF\nCOMMIT\n*filter\n:F - [0:0]\nCOMMIT\n*nat\n:NEW - [0:0]\nCOMMIT\n")
	got := strings.Join(k.Chains("nat"), " ")
	if want := "PREROUTING INPUT OUTPUT POSTROUTING NEW"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestInsertAndDeleteByPositionAndRule(t *testing.T) {
	k := restored(t, strings.Join([]string{
		"*nat", ":C - [0:0]", "[5:6] -A C -s 10.0.0.3", "-I C -s 10.0.0.1", "-I C 2 -s 10.0.0.2",
		"-A C -s 10.0.0.4", "-D C -s 10.0.0.3/32", "-D C 1", "COMMIT", "",
	}, "\n"))
	if got, want := rulesOf(k, "nat", "C"), "-s 10.0.0.2/32\n-s 10.0.0.4/32"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUnreachableChainsMayHoldAnything(t *testing.T) {
	// The kernel looks only at what a hook leads to: seen with iptables 1.8.9 in
	// both variants.
	restored(t, "*nat\n:SELF - [0:0]\n-A SELF -j SELF\n:M - [0:0]\n-A M -j MASQUERADE\nCOMMIT\n")
}

func TestAccountingObjectMakesItsRuleWelcome(t *testing.T) {
	k := NewKernel(service.IPv4)
	k.CreateAccount("seen")
	err := k.Restore(context.Background(), []byte("*filter\n:F - [0:0]\n-A F -m nfacct --nfacct-name seen -j DROP\nCOMMIT\n"))
	if err != nil {
		t.Error(err)
	}
}

func TestPolicyOfBuiltinChain(t *testing.T) {
	k := restored(t, "*filter\n:FORWARD DROP [0:0]\n:INPUT - [0:0]\nCOMMIT\n")
	saved, err := k.Save(context.Background(), iptables.Filter)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{":INPUT ACCEPT [0:0]\n", ":FORWARD DROP [0:0]\n"} {
		if !strings.Contains(string(saved), want) {
			t.Errorf("%q is missing in\n%s", want, saved)
		}
	}
}
