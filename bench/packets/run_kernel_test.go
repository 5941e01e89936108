// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// small is a run of seconds.
func small() options {
	return options{
		backends: []string{nftables}, families: service.Families[:], directions: []string{forwarded, local},
		cases: cases, services: []int{servicesMin}, endpoints: 10, rounds: 1, patience: testenv.Patience,
		sampling: sampling{duration: time.Millisecond, processor: lastProcessor()},
	}
}

// TestRunAll_EveryCaseFindsRulesRight: every case accepts the rules of the current Sluice, in both families and
// directions.
func TestRunAll_EveryCaseFindsRulesRight(t *testing.T) {
	testenv.NeedsRoot(t)
	testenv.NeedsTool(t, "nft", "nftables")
	o := small()
	o.rules = t.TempDir()
	var err error
	if o.variants, err = parseVariants("", testenv.Program(t), true); err != nil {
		t.Fatal(err)
	}
	results, err := runAll(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]int{}
	for _, r := range results {
		if r.Error != "" || r.Microseconds <= 0 || r.Rounds != 1 || r.Baseline != "sluice" || r.Ratio <= 0 {
			t.Errorf("%+v", r)
		}
		figures[r.Variant]++
	}
	if want := 4 * len(cases); figures["sluice"] != want || figures[floor] != 4*4 || figures[none] != 4*4 {
		t.Errorf("figures by variant: %v, want %d of sluice and 16 of the others", figures, want)
	}
	for name, want := range map[string]string{"sluice": "table ip6 kube-proxy", floor: "masquerade", none: ""} {
		text, err := os.ReadFile(filepath.Join(o.rules, "nftables-12-"+name+".rules"))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("rules of %s: %v, %.200s", name, err, text)
		}
	}
}

// TestSampling_WrongRulesFail: sampling fails with wrong rules, under which one pod answers for every Service.
func TestSampling_WrongRulesFail(t *testing.T) {
	testenv.NeedsRoot(t)
	testenv.NeedsTool(t, "nft", "nftables")
	r, err := newRoom()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	rules := `table ip wrong {
		chain prerouting { type nat hook prerouting priority dstnat; ip daddr 10.96.0.0/12 tcp dport 80 dnat to 10.128.63.1:8080; }
		chain sent { type nat hook output priority -100; ip daddr 10.96.0.0/12 tcp dport 80 dnat to 10.128.63.1:8080; }
	}`
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(rules)
	if printed, err := netnstest.Output(r.node, load); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	c := cluster{servicesMin, 10, service.Families[:]}
	for _, b := range cases {
		want := "" // what the error says; the other ports and addresses have no rules
		if b.name == "established-cluster-ip" || b.name == "tcp-cluster-ip" || strings.HasPrefix(b.name, "affinity") {
			want = "is answered by 10.128.63.1, which is not one of its pods"
		}
		for _, direction := range []string{forwarded, local} {
			took, err := small().sampling.take(r, direction, service.IPv4, b, b.to(c, service.IPv4))
			if b.bare && (err != nil || took <= 0) || !b.bare && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, %s: %v µs, %v, want an error %t: %q", b.name, direction, took, err, !b.bare, want)
			}
		}
	}
}
