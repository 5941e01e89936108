package main

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// parsed gives the options of a command line of run that is right.
func parsed(t *testing.T, words ...string) *options {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &options{flags: config.BindServing(flags)}
	if err := flags.Parse(words); err != nil {
		t.Fatal(err)
	}
	if err := o.load(); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOptionsForTheBackend(t *testing.T) {
	o := parsed(t)
	b, err := o.iptables()
	if o.mode() != backend.ModeBest || o.rendered() != backend.ModeNFTables || err != nil {
		t.Errorf("mode %q, rendered %q, %v", o.mode(), o.rendered(), err)
	}
	if b.Variant != "auto" || b.MasqueradeBit != 14 || !b.LocalhostNodePorts || b.PrivateLock {
		t.Errorf("backend %+v", b)
	}
	o = parsed(t, "--sluice-iptables-variant", "nft", "--iptables-masquerade-bit", "5", "--iptables-localhost-nodeports=false")
	if b, err = o.iptables(); err != nil || b.Variant != "nft" || b.MasqueradeBit != 5 || b.LocalhostNodePorts {
		t.Errorf("backend %+v, %v", b, err)
	}
}
