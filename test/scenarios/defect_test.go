package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/defects"
	"github.com/sluice-proxy/sluice/test/scenarios/list"
)

// defect is a deliberate mistake in a build for one test: it replaces the text old, which occurs
// once in the file.
type defect struct {
	name           string
	file, old, new string
	modes          []string
	// caught are the scenarios that must fail. unharmed is one that must pass, which proves that
	// the build is not simply broken.
	caught   []string
	unharmed string
}

var both = []string{"nftables", "iptables"}

var planted = []defect{
	{
		name: "masquerade dropped", file: "dataplane/nftables/render/renderer.go",
		old:   "add(newRule(r.d).marked(r.mark).unmark(r.mark).masquerade())",
		new:   "add(newRule(r.d).marked(r.mark).unmark(r.mark))",
		modes: []string{"nftables"}, caught: []string{"S-CIP-03", "S-NP-01", "S-LB-01"}, unharmed: "S-CIP-01",
	},
	{
		name: "masquerade dropped", file: "dataplane/iptables/render/scaffold.go",
		old:   `"-j MARK --set-xmark " + bit + "/0x0",` + "\n\t\tmasquerade,",
		new:   `"-j MARK --set-xmark " + bit + "/0x0" + masquerade[:0],`,
		modes: []string{"iptables"}, caught: []string{"S-CIP-03", "S-NP-01", "S-LB-01"}, unharmed: "S-CIP-01",
	},
	{
		name: "local policy ignored", file: "service/resolve.go",
		old:   "ExternalLocal:   spec.ExternalLocal,",
		new:   "ExternalLocal:   false,",
		modes: both, caught: []string{"S-ETP-01", "S-ETP-05", "S-TERM-03"}, unharmed: "S-ETP-10",
	},
	{
		name: "clients stay remembered", file: "source/reduce/service.go",
		old:   "AffinitySeconds:     affinitySeconds(n, spec),",
		new:   "AffinitySeconds:     100 * affinitySeconds(n, spec),",
		modes: both, caught: []string{"S-AFF-03"}, unharmed: "S-AFF-01",
	},
	{
		name: "stale flows kept", file: "dataplane/conntrack/sweep.go",
		old:   "return by, stale && !s.expected.lead(f)",
		new:   "return by, stale && !s.expected.lead(f) && f == nil",
		modes: both, caught: []string{"S-CT-01"}, unharmed: "S-CIP-08",
	},
}

// TestDefectsAreCaught builds the proxy with each defect and plays the scenarios that must notice.
// It proves that the suite can fail.
func TestDefectsAreCaught(t *testing.T) {
	for _, d := range planted {
		t.Run(strings.ReplaceAll(d.name+" in "+d.file, " ", "-"), func(t *testing.T) {
			binary := build(t, d)
			for _, mode := range d.modes {
				for _, r := range playNamed(t, binary, mode, append(slices.Clone(d.caught), d.unharmed)) {
					want := failed
					if r.ID == d.unharmed {
						want = passed
					}
					if r.Outcome != want {
						t.Errorf("%s, mode %s: %s %s, want %s: %s", d.name, mode, r.ID, r.Outcome, want, r.Reason)
					}
				}
			}
		})
	}
}

// build builds the proxy with a defect, by an overlay of the one file.
func build(t *testing.T, d defect) string {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := defects.Overlay(top, dir, defects.Edit{File: d.file, Old: d.old, New: d.new})
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "sluice")
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./cmd/sluice")
	cmd.Dir = top
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build with the defect: %v\n%s", err, printed)
	}
	return binary
}

// playNamed plays some scenarios of the list.
func playNamed(t *testing.T, binary, mode string, ids []string) []result {
	t.Helper()
	all, err := list.All()
	if err != nil {
		t.Fatal(err)
	}
	var results []result
	s := suite{mode: mode, binary: binary, dir: t.TempDir(), workers: 4, timeout: 90 * time.Second}
	pattern := regexp.MustCompile(fmt.Sprintf("^(%s)$", strings.Join(ids, "|")))
	if _, err := s.play(context.WithoutCancel(t.Context()), all, pattern, func(r result) { results = append(results, r) }); err != nil {
		t.Fatal(err)
	}
	if len(results) != len(ids) {
		t.Fatalf("%d scenarios were played, want %v", len(results), ids)
	}
	return results
}
