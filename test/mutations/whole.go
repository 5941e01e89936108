// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/defects"
)

// whole are defects of the whole program: those that scenarios find, and the one with which
// test/campaign begins.
var whole = []mutation{
	{
		name:     "masquerade dropped in nftables mode",
		sentence: "Connections that need it are masqueraded.",
		edits: edit("dataplane/nftables/render/renderer.go", "add(newRule(r.d).marked(r.mark).unmark(r.mark).masquerade())",
			"add(newRule(r.d).marked(r.mark).unmark(r.mark))"),
		campaigns: []campaign{inMode("nftables", "S-CIP-01", "S-CIP-03", "S-NP-01", "S-LB-01")}, short: true,
	},
	{
		name:     "masquerade dropped in iptables mode",
		sentence: "Connections that need it are masqueraded.",
		edits: edit("dataplane/iptables/render/scaffold.go", `"-j MARK --set-xmark " + bit + "/0x0",`+"\n\t\tmasquerade,",
			`"-j MARK --set-xmark " + bit + "/0x0" + masquerade[:0],`),
		campaigns: []campaign{inMode("iptables", "S-CIP-01", "S-CIP-03", "S-NP-01", "S-LB-01")}, short: true,
	},
	{
		name:      "local policy ignored",
		sentence:  "externalTrafficPolicy: Local keeps external connections on the node.",
		edits:     edit("service/resolve.go", "ExternalLocal:    s.ExternalLocal,", "ExternalLocal:   false,"),
		campaigns: inBoth("S-ETP-10", "S-ETP-01", "S-ETP-05", "S-TERM-03"),
	},
	{
		name:      "clients stay remembered",
		sentence:  "Session affinity ends after its timeout.",
		edits:     edit("source/reduce/service.go", "AffinitySeconds:     affinitySeconds(n, spec),", "AffinitySeconds:     100 * affinitySeconds(n, spec),"),
		campaigns: inBoth("S-AFF-01", "S-AFF-03"),
	},
	{
		name:      "stale flows kept",
		sentence:  "UDP flows to endpoints that are gone are deleted.",
		edits:     edit("dataplane/conntrack/cleaner/judge.go", "if stale && !s.table.expects(f) {", "if stale && !s.table.expects(f) && f == nil {"),
		campaigns: inBoth("S-CIP-08", "S-CT-01"), short: true,
	},
	{
		name:     "the kernel rejects one Service",
		sentence: "A rejected Service costs the others no connection, through restarts and upgrades.",
		edits:    defects.Rejecting("s0"),
		campaigns: []campaign{
			{faulty, "campaign in mode nftables", "nftables", ""}, {faulty, "campaign in mode iptables", "iptables", ""},
		},
	},
}

// inMode plays scenarios in a mode.
func inMode(mode, passes string, fail ...string) campaign {
	return campaign{scenarios, "scenarios in mode " + mode, mode, passes + " " + strings.Join(fail, " ")}
}

func inBoth(passes string, fail ...string) []campaign {
	return []campaign{inMode("nftables", passes, fail...), inMode("iptables", passes, fail...)}
}

// every reports whether each campaign has to find the defect, not just one.
func (m *mutation) every() bool {
	h := m.campaigns[0].harness
	return h == scenarios || h == faulty
}

// play builds the program with the defect and plays scenarios with it. It notes the first that fails
// as it should, and nothing unless all do.
func (r *runner) play(ctx context.Context, c campaign, dir, overlay string, f *finding) error {
	program, player := filepath.Join(dir, "sluice"), filepath.Join(r.clean, "scenarios")
	for _, b := range []struct{ overlay, output, pkg string }{{overlay, program, "./cmd/sluice"}, {"", player, "./test/scenarios"}} {
		if _, missing := os.Stat(b.output); missing != nil {
			if err := defects.Build(ctx, ".", b.overlay, b.output, "build", b.pkg); err != nil {
				return err
			}
		}
	}
	began := time.Now()
	defer func() { f.took += time.Since(began) }()
	numbers := strings.Fields(c.tests)
	cmd := exec.CommandContext(ctx, player, "-mode", c.pkg, "-binary", program, "-explain=false", "-output", "json",
		"-only", "^("+strings.Join(numbers, "|")+")$")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	printed, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		return fmt.Errorf("%s: %w: %s", c.name, err, complaint.String())
	}
	outcomes, reasons := map[string]string{}, map[string]string{}
	for line := range bytes.Lines(printed) {
		var result struct{ ID, Outcome, Reason string }
		if err := json.Unmarshal(line, &result); err != nil {
			return err
		}
		outcomes[result.ID], reasons[result.ID] = result.Outcome, result.Reason
	}
	if passes := numbers[0]; outcomes[passes] != "passed" {
		return fmt.Errorf("%s: the build is broken: %s %s: %s", c.name, passes, outcomes[passes], reasons[passes])
	}
	f.where, f.what = "", ""
	for _, number := range numbers[1:] {
		if outcomes[number] != "FAILED" {
			fmt.Printf("\t%s: %s %s\n", c.name, number, outcomes[number])
			return nil
		}
	}
	f.where = numbers[1]
	f.what, _, _ = strings.Cut(reasons[numbers[1]], "\n")
	return nil
}

// suffer runs test/campaign, which builds the program with the defect by itself. It ends with an
// error if the kernel rejected nothing, or if others lost a connection.
func (r *runner) suffer(ctx context.Context, c campaign, f *finding) error {
	builds := filepath.Join(r.clean, "builds")
	campaign := func(words ...string) (string, error) {
		printed, err := exec.CommandContext(ctx, "go", append([]string{"run", "./test/campaign", "-builds", builds}, words...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", c.name, err, printed)
		}
		return string(printed), err
	}
	if _, missing := os.Stat(builds); missing != nil {
		if _, err := campaign("-prepare"); err != nil {
			return err
		}
	}
	words := []string{"-duration", "20s", "-services", "40", "-live", "10", "-patience", "1m", "-mode", c.pkg}
	if c.pkg == "iptables" {
		words = append(words, "-variant", "nft")
	}
	began := time.Now()
	printed, err := campaign(words...)
	f.took += time.Since(began)
	f.where, f.what = "", ""
	for line := range strings.Lines(printed) {
		if strings.Contains(line, "had the Service rejected") {
			f.where, f.what = "its end", strings.TrimSpace(line)
		}
	}
	return err
}
