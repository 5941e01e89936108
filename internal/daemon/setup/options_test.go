package setup

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
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

func TestOptionsForTheBackend(t *testing.T) {
	b, err := parsed(t).iptables(sysctl.Files{}, nil)
	if err != nil || b.Variant != "auto" || b.MasqueradeBit != 14 || !b.LocalhostNodePorts || b.PrivateLock {
		t.Errorf("backend %+v, %v", b, err)
	}
	o := parsed(t, "--sluice-iptables-variant", "nft", "--iptables-masquerade-bit", "5", "--iptables-localhost-nodeports=false")
	if b, err = o.iptables(sysctl.Files{}, nil); err != nil || b.Variant != "nft" || b.MasqueradeBit != 5 || b.LocalhostNodePorts {
		t.Errorf("backend %+v, %v", b, err)
	}
}
