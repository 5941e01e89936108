package main

import (
	"net/netip"
	"testing"

	"github.com/spf13/pflag"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/backend"
	"github.com/sluice-proxy/sluice/service"
)

// parsed gives the options of a command line that is right.
func parsed(t *testing.T, words ...string) *options {
	t.Helper()
	var o options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.bind(flags)
	if err := flags.Parse(words); err != nil {
		t.Fatal(err)
	}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestOptionsDefaults(t *testing.T) {
	o := parsed(t)
	s, err := o.settings(backend.ModeIPTables)
	if err != nil {
		t.Fatal(err)
	}
	if s.NodePortPrimary || s.Name == "" || s.DetectLocal != "" || s.MasqueradeAll || !s.LocalhostNodePorts || s.NodePortRanges != nil {
		t.Errorf("settings %+v", s)
	}
	if s, err = o.settings(backend.ModeNFTables); err != nil || !s.NodePortPrimary {
		t.Errorf("settings of nftables mode %+v, %v", s, err)
	}
	b, err := o.iptables()
	if err != nil || b.Variant != "auto" || b.MasqueradeBit != 14 || !b.LocalhostNodePorts || b.PrivateLock {
		t.Errorf("backend %+v", b)
	}
}

func TestOptionsSettings(t *testing.T) {
	s, err := parsed(t, "--hostname-override", " Node-1 ", "--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cali",
		"--cluster-cidr", "10.244.0.1/16, fd00::1/48", "--masquerade-all", "--nodeport-addresses", "192.168.1.7/24,fd00:1::/64").settings(backend.ModeIPTables)
	if err != nil {
		t.Fatal(err)
	}
	want := service.PerFamily[netip.Prefix]{service.IPv4: netip.MustParsePrefix("10.244.0.0/16"), service.IPv6: netip.MustParsePrefix("fd00::/48")}
	if s.Name != "node-1" || s.DetectLocal != proxy.DetectInterfaceNamePrefix || s.Interface != "cali" || s.ClusterCIDRs != want || !s.MasqueradeAll {
		t.Errorf("settings %+v", s)
	}
	if len(s.NodePortRanges) != 2 || s.NodePortRanges[0] != netip.MustParsePrefix("192.168.1.0/24") {
		t.Errorf("ranges %v", s.NodePortRanges)
	}
	s, err = parsed(t, "--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0", "--pod-interface-name-prefix", "cali").settings(backend.ModeIPTables)
	if err != nil || s.Interface != "cni0" {
		t.Errorf("settings %+v, %v", s, err)
	}
}

// TestOptionsLocalhostNodePorts: node ports answer on localhost unless that is
// switched off, or the ranges of IPv4 leave it out.
func TestOptionsLocalhostNodePorts(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  bool
	}{
		{nil, true},
		{[]string{"--iptables-localhost-nodeports=false"}, false},
		{[]string{"--nodeport-addresses=192.168.0.0/16"}, false},
		{[]string{"--nodeport-addresses=192.168.0.0/16,127.0.0.0/8"}, true},
		{[]string{"--nodeport-addresses=127.0.0.1/32"}, true},
		{[]string{"--nodeport-addresses=0.0.0.0/0"}, true},
		{[]string{"--nodeport-addresses=fd00::/8"}, true},
		{[]string{"--nodeport-addresses=127.0.0.0/8", "--iptables-localhost-nodeports=false"}, false},
	} {
		s, err := parsed(t, c.words...).settings(backend.ModeIPTables)
		if err != nil || s.LocalhostNodePorts != c.want {
			t.Errorf("%v: %v, %v; want %v", c.words, s.LocalhostNodePorts, err, c.want)
		}
	}
}
