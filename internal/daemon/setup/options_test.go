// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// parsed returns the options of a valid command line of run.
func parsed(t *testing.T, words ...string) *Options {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Flags: config.BindServing(flags)}
	check(t, flags.Parse(words))
	check(t, o.Load())
	return o
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReach: the line at startup describes where node ports answer if nftables mode is chosen.
func TestReach(t *testing.T) {
	const noLocalhost = "--iptables-localhost-nodeports=false"
	for want, words := range map[string][]string{
		"all addresses, localhost included,":        nil,
		"all addresses but not on localhost":        {noLocalhost},
		"primary but not on localhost":              {"--nodeport-addresses=primary"},
		"primary 192.0.2.0/24, localhost included,": {"--nodeport-addresses=primary,localhost,192.0.2.0/24"},
		"primary but not on localhost ":             {"--nodeport-addresses=primary,127.0.0.0/8", noLocalhost},
		"localhost only,":                           {"--nodeport-addresses=localhost"},
		"localhost only, ":                          {"--nodeport-addresses=127.0.0.0/8,::1/128"},
		"no address":                                {"--nodeport-addresses=localhost", noLocalhost},
	} {
		if got := parsed(t, words...).reach(); got != "node ports answer on "+strings.TrimSuffix(want, " ") {
			t.Errorf("%v: %q, want %q", words, got, want)
		}
	}
}

// TestListens: all addresses on which the proxy listens are listed, each once.
func TestListens(t *testing.T) {
	o := parsed(t)
	o.KubeProxy.HealthzBindAddress, o.KubeProxy.MetricsBindAddress = "0.0.0.0:10256", "127.0.0.1:10249"
	o.Sluice.Healthz.ProbeAddress, o.Sluice.Inspection.BindAddress = "127.0.0.1:10257", "0.0.0.0:10253"
	fields := func() (all []string) {
		for _, l := range o.Listens() {
			all = append(all, l.Field)
		}
		return all
	}
	if got, want := fields(), []string{"healthzBindAddress", "healthz.probeAddress", "metricsBindAddress", "inspection.bindAddress"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	o.Sluice.Healthz.ProbeAddress, o.Sluice.Inspection.BindAddress = "127.0.0.1:10256", "" // the first one answers there
	if got, want := fields(), []string{"healthzBindAddress", "metricsBindAddress"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOptions_Backend: the flags and settings reach the options of the iptables backend.
func TestOptions_Backend(t *testing.T) {
	b, err := parsed(t).iptables(sysctl.Files{}, nil)
	if err != nil || b.Variant != "auto" || b.MasqueradeBit != 14 || !b.LocalhostNodePorts || b.PrivateLock {
		t.Errorf("backend %+v, %v", b, err)
	}
	o := parsed(t, testenv.Settings(t, "iptables: {variant: nft}"), "--iptables-masquerade-bit", "5", "--iptables-localhost-nodeports=false")
	if b, err = o.iptables(sysctl.Files{}, nil); err != nil || b.Variant != "nft" || b.MasqueradeBit != 5 || b.LocalhostNodePorts {
		t.Errorf("backend %+v, %v", b, err)
	}
}
