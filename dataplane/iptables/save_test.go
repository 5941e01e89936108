package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

func TestParseSave(t *testing.T) {
	s, err := parseSave(NAT, []byte(savedTable(NAT,
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
	// Each chain once; extensions are no chains, and a comment is no jump.
	if want := []dataplane.ID{{Container: "nat", Name: "KUBE-SVC-B"}}; !slices.Equal(got.Refs, want) {
		t.Errorf("refs = %v, want %v", got.Refs, want)
	}
	if o := s.object("KUBE-SVC-B"); o == nil || o.Body != "" {
		t.Errorf("a chain without rules reads as %+v", o)
	}
	if o := s.object("KUBE-SVC-C"); o != nil {
		t.Errorf("a chain that does not exist reads as %+v", o)
	}
}

func TestParseSaveOfNothing(t *testing.T) {
	s, err := parseSave(NAT, nil)
	if err != nil || len(s.chains) != 0 {
		t.Errorf("got %v, %v; want an empty table", s, err)
	}
}

func TestParseSaveRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, printed := range map[string]string{
		"cut off":            "*nat\n:KUBE-SERVICES - [0:0]\n",
		"another table":      savedTable(Filter, ":INPUT ACCEPT [0:0]"),
		"no table line":      ":KUBE-SERVICES - [0:0]\nCOMMIT\n",
		"counters":           savedTable(NAT, ":A - [0:0]", "[1:2] -A A -j ACCEPT"),
		"chain without rest": savedTable(NAT, ":A"),
		"made by nft":        "# Table `nat' is incompatible, use 'nft' tool.\n",
	} {
		if _, err := parseSave(NAT, []byte(printed)); err == nil || !strings.Contains(err.Error(), "nat") {
			t.Errorf("%s: error %v, want one that names the table", name, err)
		}
	}
}
