// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestRender_MatchesInspectPage: each line that docs/inspect.md quotes is among the rules for the sample manifests.
func TestRender_MatchesInspectPage(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "inspect.md"))
	check(err)
	dir := t.TempDir()
	for _, examples := range []string{"demo", "web"} {
		check(os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "..", "examples", examples))))
	}
	rendered := map[string]string{}
	for fence, words := range map[string][]string{
		"```nft":      {"--proxy-mode", "nftables"},
		"```iptables": {"--proxy-mode", "iptables"},
	} {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o := &setup.Options{Flags: config.BindRender(flags)}
		check(flags.Parse(append(words, "--hostname-override", "demo")))
		check(o.Load())
		rendered[fence], err = Render(o, dir, "")
		check(err)
	}
	fence, quotes := "", 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			fence = line
		case rendered[fence] != "":
			quotes++
			if !strings.Contains(rendered[fence], line) {
				t.Errorf("%s\nis no longer rendered", line)
			}
		}
	}
	if quotes < 5 {
		t.Errorf("only %d lines are quoted; the test proves little", quotes)
	}
}

// TestRender_ProxyOptionsCount: printed and explained rules are those that the proxy would load with the same flags.
func TestRender_ProxyOptionsCount(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(hashing), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(words ...string) (rules, explained string) {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o := &setup.Options{Flags: config.BindServing(flags)}
		if err := errors.Join(flags.Parse(append(words, "--hostname-override", "demo")), o.Load()); err != nil {
			t.Fatal(err)
		}
		rules, err := Render(o, dir, "")
		if err != nil {
			t.Fatal(err)
		}
		s, err := readState(o, dir, setup.NFTables)
		if err != nil {
			t.Fatal(err)
		}
		state, err := s.explainState()
		if err != nil {
			t.Fatal(err)
		}
		renderer, _ := state.Domain(service.IPv4)
		text, err := nftrender.Text(service.IPv4, render.Objects(renderer, nil, render.Views(s.cache, s.facts), s.facts))
		if err != nil {
			t.Fatal(err)
		}
		return rules, text
	}
	plain, _ := with()
	for flag, want := range map[string]string{
		testenv.Settings(t, "balancing: {seed: 7}"): "seed 0x7", testenv.Settings(t, "traffic: {endpoints: true}"): "",
		testenv.Settings(t, "selfTest: {enabled: false}"): "", "--iptables-masquerade-bit=5": "",
	} {
		rules, explained := with(flag)
		if rules == plain || !strings.Contains(rules, want) || !strings.Contains(rules, explained) {
			t.Errorf("%s has no effect, or not the same one on both", flag)
		}
	}
}

// hashing is a Service that chooses endpoints by a hash, so that the seed counts. One of its addresses is in the ServiceCIDR of the examples.
const hashing = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {sluice.dev/balancing: sourceHash}}
spec: {externalIPs: [172.30.77.77], clusterIP: 172.30.0.9, clusterIPs: [172.30.0.9], ports: [{name: p, port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: p, port: 80, protocol: TCP}]
endpoints: [{addresses: [10.244.1.1]}, {addresses: [10.244.1.2]}]
`
