package backend

import (
	"errors"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

func TestChoiceIsOneLine(t *testing.T) {
	const reach = "node ports answer on all addresses, localhost included,"
	kept := iptables.Former{Variant: iptables.NFT, Family: service.IPv4, ServicePorts: 12}
	dropped := iptables.Former{Variant: iptables.Legacy, Family: service.IPv6, ServicePorts: 3, ForwardDropped: true}
	for name, c := range map[string]struct {
		mode   Mode
		former []iptables.Former
		lines  []string
	}{
		"a fresh node": {ModeNFTables, []iptables.Former{{Variant: iptables.NFT}, {Variant: iptables.Legacy, ForwardDropped: true}}, []string{
			"mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer on all addresses, localhost included, as in iptables mode; " +
				"set mode (--proxy-mode) to have another"}},
		"iptables mode before": {ModeNFTables, []iptables.Former{kept}, []string{
			"mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer on all addresses, localhost included, as in iptables mode, " +
				"which has served this node until now (nft IPv4: chains of 12 Service ports); set mode: iptables (--proxy-mode iptables) to keep it"}},
		"a firewall": {ModeNFTables, []iptables.Former{kept, dropped}, []string{
			"mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer on all addresses, localhost included, as in iptables mode, " +
				"which has served this node until now (nft IPv4: chains of 12 Service ports, legacy IPv6: chains of 3 Service ports); set mode: iptables (--proxy-mode iptables) to keep it",
			"packets for Services may not be forwarded any more: a firewall drops by default what is forwarded; iptables mode accepts Services' packets there, " +
				"and nftables mode leaves that to the firewall. Accept packets to and from pods there, or set mode: iptables (--proxy-mode iptables)"}},
		"an old kernel": {ModeIPTables, nil, []string{"mode is not set: iptables, because nftables mode, which is faster, needs what this kernel lacks"}},
	} {
		core, lines := observer.New(zap.InfoLevel)
		(&Choice{Reach: reach, Former: c.former, Log: zap.New(core)}).tell(c.mode, errors.New("Linux 5.6"))
		said := lines.All()
		if len(said) != len(c.lines) {
			t.Errorf("%s: %d lines, want %d: %v", name, len(said), len(c.lines), said)
			continue
		}
		for i, want := range c.lines {
			if said[i].Message != want {
				t.Errorf("%s:\n%s\nwant\n%s", name, said[i].Message, want)
			}
		}
	}
	(*Choice)(nil).tell(ModeNFTables, nil) // nobody to tell
}
