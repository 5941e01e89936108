// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestChoose(t *testing.T) {
	missing := errors.New("not installed")
	nft := func(marked bool, rules, services int) holding {
		return holding{variant: NFT, marked: marked, rules: rules, services: services}
	}
	legacy := func(marked bool, rules, services int) holding {
		return holding{variant: Legacy, marked: marked, rules: rules, services: services}
	}
	for _, tt := range []struct {
		name   string
		want   string
		found  []holding
		usual  Variant
		chosen Variant // "" for an error
		reason string
		others int
	}{
		{"nothing anywhere", Auto, []holding{nft(false, 0, 0), legacy(false, 0, 0)}, "", NFT, "neither", 0},
		{"nothing anywhere, legacy in PATH", Auto, []holding{nft(false, 0, 0), legacy(false, 0, 0)}, Legacy, Legacy, "iptables in PATH is of this one", 0},
		{"nothing anywhere, nft in PATH", Auto, []holding{nft(false, 0, 0), legacy(false, 0, 0)}, NFT, NFT, "iptables in PATH is of this one", 0},
		{"as many rules, legacy in PATH", Auto, []holding{nft(false, 3, 1), legacy(false, 3, 1)}, Legacy, Legacy, "iptables in PATH", 1},
		{"the mark beats the count", Auto, []holding{nft(false, 900, 9), legacy(true, 0, 0)}, NFT, Legacy, "kubelet", 1},
		{"two marks", Auto, []holding{nft(true, 0, 0), legacy(true, 900, 9)}, Legacy, NFT, "kubelet", 1},
		{"more rules in legacy", Auto, []holding{nft(false, 1, 0), legacy(false, 2, 1)}, NFT, Legacy, "more rules", 0},
		{"more rules in nft", Auto, []holding{nft(false, 2, 1), legacy(false, 1, 1)}, Legacy, NFT, "it holds more rules", 1},
		{"only legacy", Auto, []holding{legacy(false, 0, 0)}, NFT, Legacy, "other variant cannot", 0},
		{"asked for nft", "nft", []holding{nft(false, 0, 0), legacy(true, 9, 3)}, Legacy, NFT, "asked", 1},
		{"asked for legacy", "legacy", []holding{nft(true, 9, 3), legacy(false, 0, 0)}, NFT, Legacy, "asked", 1},
		{"asked for what is missing", "legacy", []holding{nft(true, 9, 3)}, NFT, "", "", 0},
		{"nothing installed", Auto, nil, NFT, "", "", 0},
	} {
		d, err := choose(tt.want, tt.found, tt.usual, missing)
		if tt.chosen == "" {
			if !errors.Is(err, missing) {
				t.Errorf("%s: %+v, %v", tt.name, d, err)
			}
			continue
		}
		if err != nil || d.Variant != tt.chosen || !strings.Contains(d.Reason, tt.reason) || len(d.Leftovers) != tt.others {
			t.Errorf("%s: %+v, %v", tt.name, d, err)
		}
	}
}

func TestHolding_Count(t *testing.T) {
	var h holding
	h.count("*filter\n:KUBE-KUBELET-CANARY - [0:0]\n-A KUBE-FIREWALL -j DROP\n-A INPUT -j KUBE-FIREWALL\nCOMMIT\n")
	if h.marked || h.rules != 1 || h.services != 0 || h.all != 2 {
		t.Errorf("the mark counts in mangle only: %+v", h)
	}
	h.count("*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n-A KUBE-SERVICES -j KUBE-SVC-X\nCOMMIT\n")
	if !h.marked || h.rules != 2 || h.services != 2 || h.all != 3 {
		t.Errorf("counted %+v", h)
	}
}

// TestFormer_Marking: Marking lists the chains whose rules set a mark bit. Rules that clear it and the proxy's own mark
// do not count.
func TestFormer_Marking(t *testing.T) {
	var h holding
	h.count("*mangle\n-A PREROUTING -i eth9 -j MARK --set-xmark 0x5000/0xffffffff\n" +
		"-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000\n-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000\nCOMMIT\n" +
		"*nat\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n-A OTHER -m mark --mark 0x4000/0x4000 -j MASQUERADE\nCOMMIT\n")
	f := Former{marks: h.marks}
	for bit, want := range map[uint]string{12: "PREROUTING", 14: "PREROUTING", 16: "", 18: "cali-PREROUTING"} {
		if got := strings.Join(f.Marking(bit), " "); got != want {
			t.Errorf("bit %d is set in %q, want %q", bit, got, want)
		}
	}
}

// TestChoose_ReportsOtherVariant: choose reports rules and DROP policies of the unused variant, which packets pass as
// well.
func TestChoose_ReportsOtherVariant(t *testing.T) {
	for printed, want := range map[string]string{
		"": "",
		"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n":                            "",
		"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [7:420]\nCOMMIT\n":                            "the legacy variant of iptables contains policy DROP in FORWARD of filter",
		"*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n-A INPUT -j ACCEPT\n-A X -j Y\nCOMMIT\n": "the legacy variant of iptables contains 2 rules and policy DROP in INPUT of filter, FORWARD of filter",
	} {
		h := holding{variant: Legacy}
		h.count(printed)
		d, err := choose(Auto, []holding{{variant: NFT}, h}, NFT, nil)
		if err != nil || d.Variant != NFT || d.Unused != want {
			t.Errorf("%q: %+v, %v; want %q", printed, d, err, want)
		}
	}
}

// TestDetect_UnknownVariant: Detect rejects an unknown variant and names the valid ones.
func TestDetect_UnknownVariant(t *testing.T) {
	if _, err := Detect(t.Context(), "nftables", service.Families[:]); err == nil || !strings.Contains(err.Error(), "auto, legacy or nft") {
		t.Errorf("error %v", err)
	}
}

// TestDetect_WithoutPrograms: Detect returns a MissingError if no programs are installed.
func TestDetect_WithoutPrograms(t *testing.T) {
	fakePrograms(t, nil)
	_, err := Detect(t.Context(), Auto, service.Families[:])
	if _, ok := errors.AsType[*MissingError](err); !ok {
		t.Errorf("error %v, want a MissingError", err)
	}
}

// TestDetect_HonoursContext: Detect returns when its context has ended.
func TestDetect_HonoursContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Detect(ctx, Auto, service.Families[:]); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
