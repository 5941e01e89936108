package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// builders are what Build may call; each domain has the name of its builder.
type builders struct {
	nftErr, iptErr, ipvsErr error
	called                  []string
}

func (b *builders) builder(name string, err *error) Builder {
	return func() ([]proxy.Domain, error) {
		b.called = append(b.called, name)
		if *err != nil {
			return nil, *err
		}
		return []proxy.Domain{{Name: name}}, nil
	}
}

func TestBuild(t *testing.T) {
	old := &nftables.MissingError{Family: service.IPv4, Feature: "ranges in concatenations", Need: "Linux 5.6", Err: unix.EOPNOTSUPP}
	none := errors.New("no iptables")
	for name, c := range map[string]struct {
		asked                   config.Mode
		nftErr, iptErr, ipvsErr error
		want                    config.Mode
		called                  []string
		problem, log            string
	}{
		"best, modern kernel":           {asked: config.ModeBest, want: config.ModeNFTables, called: []string{"nft"}, log: "mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer here"},
		"best, old kernel":              {asked: config.ModeBest, nftErr: old, want: config.ModeIPTables, called: []string{"nft", "ipt"}, log: "Linux 5.6"},
		"best, neither":                 {asked: config.ModeBest, nftErr: old, iptErr: none, want: config.ModeIPTables, called: []string{"nft", "ipt"}, problem: "no iptables", log: "mode is not set: iptables, because"},
		"best, trouble of another kind": {asked: config.ModeBest, nftErr: unix.EPERM, want: config.ModeNFTables, called: []string{"nft"}, problem: "operation not permitted"},
		"nftables":                      {asked: config.ModeNFTables, want: config.ModeNFTables, called: []string{"nft"}},
		"nftables, old kernel":          {asked: config.ModeNFTables, nftErr: old, want: config.ModeNFTables, called: []string{"nft"}, problem: "Linux 5.6: operation not supported\nuse a kernel that has it, or --proxy-mode iptables"},
		"iptables":                      {asked: config.ModeIPTables, nftErr: old, want: config.ModeIPTables, called: []string{"ipt"}},
		"ipvs":                          {asked: config.ModeIPVS, want: config.ModeIPVS, called: []string{"ipvs"}},
		"ipvs, no fall-back":            {asked: config.ModeIPVS, ipvsErr: none, want: config.ModeIPVS, called: []string{"ipvs"}, problem: "no iptables"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &builders{nftErr: c.nftErr, iptErr: c.iptErr, ipvsErr: c.ipvsErr}
			core, lines := observer.New(zap.InfoLevel)
			mode, domains, err := Build(c.asked, &Choice{Log: zap.New(core), Reach: "node ports answer here"}, Builders{
				NFTables: b.builder("nft", &b.nftErr), IPTables: b.builder("ipt", &b.iptErr), IPVS: b.builder("ipvs", &b.ipvsErr)})
			if mode != c.want || !slices.Equal(b.called, c.called) {
				t.Errorf("mode %q after calls %v, want %q after %v", mode, b.called, c.want, c.called)
			}
			if (err == nil) != (c.problem == "") || (err != nil && !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("error %v, want %q", err, c.problem)
			}
			if err == nil && (len(domains) != 1 || domains[0].Name != c.called[len(c.called)-1]) {
				t.Errorf("domains %+v", domains)
			}
			said := ""
			for _, l := range lines.All() {
				said += fmt.Sprint(l.Message, " ", l.ContextMap()["error"])
			}
			if (said == "") != (c.log == "") || !strings.Contains(said, c.log) {
				t.Errorf("log %q, want %q", said, c.log)
			}
		})
	}
}

func TestChoiceIsOneLine(t *testing.T) {
	const reach = "node ports answer on all addresses, localhost included,"
	kept := iptables.Former{Variant: iptables.NFT, Family: service.IPv4, ServicePorts: 12}
	dropped := iptables.Former{Variant: iptables.Legacy, Family: service.IPv6, ServicePorts: 3, ForwardDropped: true}
	for name, c := range map[string]struct {
		mode   config.Mode
		former []iptables.Former
		lines  []string
	}{
		"a fresh node": {config.ModeNFTables, []iptables.Former{{Variant: iptables.NFT}, {Variant: iptables.Legacy, ForwardDropped: true}}, []string{
			"mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer on all addresses, localhost included, as in iptables mode; " +
				"set mode (--proxy-mode) to have another"}},
		"iptables mode before": {config.ModeNFTables, []iptables.Former{kept}, []string{
			"mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer on all addresses, localhost included, as in iptables mode, " +
				"which has served this node until now (nft IPv4: chains of 12 Service ports); set mode: iptables (--proxy-mode iptables) to keep it"}},
		"a firewall": {config.ModeNFTables, []iptables.Former{kept, dropped}, []string{
			"mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer on all addresses, localhost included, as in iptables mode, " +
				"which has served this node until now (nft IPv4: chains of 12 Service ports, legacy IPv6: chains of 3 Service ports); set mode: iptables (--proxy-mode iptables) to keep it",
			"packets for Services may no longer be forwarded: a firewall drops forwarded packets by default. " +
				"iptables mode accepts Services' packets there; nftables mode leaves that to the firewall. " +
				"Accept packets to and from pods there, or set mode: iptables (--proxy-mode iptables)"}},
		"an old kernel": {config.ModeIPTables, nil, []string{"mode is not set: iptables, because this kernel lacks what the faster nftables mode needs"}},
	} {
		core, lines := observer.New(zap.InfoLevel)
		(&Choice{Reach: reach, Former: c.former, Log: zap.New(core)}).explain(c.mode, errors.New("Linux 5.6"))
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
	(*Choice)(nil).explain(config.ModeNFTables, nil) // nobody to tell
}

func TestHasFamily(t *testing.T) {
	files := sysctl.Files{Root: t.TempDir()} // a kernel without IPv6
	if err := hasFamily(service.IPv4, files); err != nil {
		t.Errorf("IPv4: %v", err)
	}
	missing, ok := errors.AsType[*nftables.MissingError](hasFamily(service.IPv6, files))
	if !ok || missing.Family != service.IPv6 || missing.Need == "" {
		t.Errorf("IPv6 without: %+v", missing)
	}
	at := filepath.Join(files.Root, "proc/thread-self/net/if_inet6")
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte("address\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := hasFamily(service.IPv6, files); err != nil {
		t.Errorf("IPv6: %v", err)
	}
}
