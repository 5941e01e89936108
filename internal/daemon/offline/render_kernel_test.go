// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// values has other values for each flag and setting that changes rules.
var (
	values = map[string][]string{
		"iptables-masquerade-bit": {"=5"}, "masquerade-all": {""},
		"iptables-localhost-nodeports": {"=false"}, "cluster-cidr": {"=10.244.0.0/16"}, "hostname-override": {"=other"},
		"nodeport-addresses": {"=127.0.0.0/8", "=primary"}, "detect-local-mode": {"=NodeCIDR"},
		"pod-bridge-interface":      {"=cni0 --detect-local-mode=BridgeInterface"},
		"pod-interface-name-prefix": {"=cali --detect-local-mode=InterfaceNamePrefix"},
	}
	settings = []string{
		"traffic: {endpoints: true}", "balancing: {seed: 7}", "addresses: {externalIPsInServiceCIDR: true}",
		"selfTest: {enabled: false}",
	}
)

// TestRender_MatchesStart: for each mode with rules, and each flag and setting that changes rules, the printed rules
// are those that a start loads.
func TestRender_MatchesStart(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"demo", "web"} {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "..", "examples", name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "hash.yaml"), []byte(hashing), 0o600); err != nil {
		t.Fatal(err)
	}
	changed := map[string]bool{}
	for _, mode := range []string{"nftables", "iptables"} {
		plain := printedAndLoaded(t, dir, mode)
		for flag, all := range values {
			for _, value := range all {
				if printedAndLoaded(t, dir, mode, strings.Fields("--"+flag+value)...) != plain {
					changed[flag] = true
				}
			}
		}
		for _, lines := range settings {
			if printedAndLoaded(t, dir, mode, testenv.Settings(t, lines)) != plain {
				changed[lines] = true
			}
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(values)), settings) {
		if !changed[name] {
			t.Errorf("%s changes no rules", name)
		}
	}
}

// uncounted returns rules without what counts packets, which render leaves out because it asks no kernel.
func uncounted(rules string) string {
	var kept strings.Builder
	for line := range strings.Lines(rules) {
		if line = strings.ReplaceAll(line, " -m nfacct --nfacct-name "+iptrender.AccountInvalid, ""); !strings.Contains(line, iptrender.AccountLocalhost) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// printedAndLoaded returns the rules that render prints, and fails if a dry start would load others.
func printedAndLoaded(t *testing.T, dir, mode string, words ...string) (printed string) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &setup.Options{Flags: config.BindRender(set)}
	given := append([]string{"--proxy-mode=" + mode, "--hostname-override=demo", testenv.Settings(t, "log: {level: error}")}, words...)
	if err := errors.Join(set.Parse(given), o.Load()); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	s, err := readState(o, dir, o.Assumed())
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	o.Dry = func(sysctl.Change) {}
	log := zap.NewNop()
	b, err := setup.NewBackend(t.Context(), o, o.Sysctls(log), &backend.Forwarders{}, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() // nothing was written
	facts := factsOfAStart(t, o, b, s.cache)
	for i := range b.Domains {
		d := &b.Domains[i]
		objects, err := s.objects(d.Family)
		if err != nil {
			t.Fatal(err)
		}
		text, err := s.mode.Text(d.Family, objects)
		loaded, loadedErr := b.Mode.Text(d.Family, render.Objects(d.Renderer, d.Layout, render.Views(s.cache, facts), facts))
		if err = errors.Join(err, loadedErr); err != nil || text != uncounted(loaded) {
			t.Errorf("%s in %s, %v: printed are\n%s\nnot\n%s\n%v", mode, d.Family, words, text, loaded, err)
		}
		printed += text
	}
	return printed
}

// factsOfAStart returns the facts that a start learns: with all addresses of the host, also if no rule depends on them.
func factsOfAStart(t *testing.T, o *setup.Options, b *setup.Backend, cache *source.Cache) *service.NodeFacts {
	t.Helper()
	node, err := o.NodeSettings(b.Mode.Name)
	hosts, hostsErr := hostaddress.List()
	if err := errors.Join(err, hostsErr); err != nil {
		t.Fatal(err)
	}
	return node.Facts(cache.Node(), hosts, cache.ServiceCIDRs(), nil)
}
