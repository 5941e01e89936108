// SPDX-License-Identifier: Apache-2.0

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

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// builders are what Build may call; each domain has the name of its builder. nftPart is what the
// kernel lacks for one family of nftables mode. iptPart leaves iptables mode with one family.
type builders struct {
	nftErr, nftPart, iptErr, ipvsErr error
	iptPart                          bool
	called                           []string
}

func (b *builders) build(mode config.Mode, whole bool) ([]proxy.Domain, error) {
	switch mode {
	case config.ModeNFTables:
		return b.nftables(whole)
	case config.ModeIPTables:
		return b.iptables()
	default:
		return b.ipvs()
	}
}

func (b *builders) nftables(whole bool) ([]proxy.Domain, error) {
	if b.called = append(b.called, "nft"); b.nftPart == nil {
		return b.families("nft", 2, advised(b.nftErr, whole))
	}
	if whole {
		return nil, b.nftPart
	}
	return b.families("nft", 1, nil)
}

func (b *builders) iptables() ([]proxy.Domain, error) {
	b.called = append(b.called, "ipt")
	if b.iptPart {
		return b.families("ipt", 1, b.iptErr)
	}
	return b.families("ipt", 2, b.iptErr)
}

func (b *builders) ipvs() ([]proxy.Domain, error) {
	b.called = append(b.called, "ipvs")
	return b.families("ipvs", 2, b.ipvsErr)
}

func (b *builders) families(name string, count int, err error) ([]proxy.Domain, error) {
	if err != nil {
		return nil, err
	}
	return slices.Repeat([]proxy.Domain{{Name: name}}, count), nil
}

func TestBuild(t *testing.T) {
	old := &nftkernel.MissingError{Family: service.IPv4, Feature: "ranges in concatenations", Need: "Linux 5.6", Err: unix.EOPNOTSUPP}
	old6 := &nftkernel.MissingError{Family: service.IPv6, Feature: "fib", Need: "CONFIG_NFT_FIB_IPV6", Err: unix.ENOENT}
	none := errors.New("no iptables")
	for name, c := range map[string]struct {
		asked                            config.Mode
		nftErr, nftPart, iptErr, ipvsErr error
		iptPart                          bool
		want                             config.Mode
		called                           []string
		problem, log                     string
	}{
		"best, modern kernel":           {asked: config.ModeBest, want: config.ModeNFTables, called: []string{"nft"}, log: "mode not set; using nftables, which this kernel supports; node ports answer here"},
		"best, old kernel":              {asked: config.ModeBest, nftErr: old, want: config.ModeIPTables, called: []string{"nft", "ipt"}, log: "Linux 5.6"},
		"best, one family lacks":        {asked: config.ModeBest, nftPart: old6, want: config.ModeIPTables, called: []string{"nft", "ipt"}, log: "requires CONFIG_NFT_FIB_IPV6"},
		"best, one lacks in both":       {asked: config.ModeBest, nftPart: old6, iptPart: true, want: config.ModeNFTables, called: []string{"nft", "ipt", "nft"}, log: "mode not set; using nftables"},
		"best, one lacks, no iptables":  {asked: config.ModeBest, nftPart: old6, iptErr: none, want: config.ModeNFTables, called: []string{"nft", "ipt", "nft"}, log: "mode not set; using nftables"},
		"nftables, one family lacks":    {asked: config.ModeNFTables, nftPart: old6, want: config.ModeNFTables, called: []string{"nft"}},
		"best, neither":                 {asked: config.ModeBest, nftErr: old, iptErr: none, want: config.ModeIPTables, called: []string{"nft", "ipt", "nft"}, problem: "no iptables", log: "mode not set; using iptables because"},
		"best, trouble of another kind": {asked: config.ModeBest, nftErr: unix.EPERM, want: config.ModeNFTables, called: []string{"nft"}, problem: "operation not permitted"},
		"nftables":                      {asked: config.ModeNFTables, want: config.ModeNFTables, called: []string{"nft"}},
		"nftables, old kernel":          {asked: config.ModeNFTables, nftErr: old, want: config.ModeNFTables, called: []string{"nft"}, problem: "requires Linux 5.6): operation not supported\nuse a kernel that supports it, or --proxy-mode iptables"},
		"iptables":                      {asked: config.ModeIPTables, nftErr: old, want: config.ModeIPTables, called: []string{"ipt"}},
		"ipvs":                          {asked: config.ModeIPVS, want: config.ModeIPVS, called: []string{"ipvs"}},
		"ipvs, no fall-back":            {asked: config.ModeIPVS, ipvsErr: none, want: config.ModeIPVS, called: []string{"ipvs"}, problem: "no iptables"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &builders{nftErr: c.nftErr, nftPart: c.nftPart, iptErr: c.iptErr, iptPart: c.iptPart, ipvsErr: c.ipvsErr}
			core, lines := observer.New(zap.InfoLevel)
			mode, domains, err := Build(c.asked, &Choice{Log: zap.New(core), Reach: "node ports answer here"}, b.build)
			if mode != c.want || !slices.Equal(b.called, c.called) {
				t.Errorf("mode %q after calls %v, want %q after %v", mode, b.called, c.want, c.called)
			}
			if (err == nil) != (c.problem == "") || (err != nil && !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("error %v, want %q", err, c.problem)
			}
			if err == nil && (len(domains) == 0 || domains[0].Name != c.called[len(c.called)-1]) {
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

// TestEachFamily: with whole, the lack of one family is an error, unless the node has no IPv6.
func TestEachFamily(t *testing.T) {
	lacks := func(family service.Family, err error) error { return &nftkernel.MissingError{Family: family, Err: err} }
	off := &sysctl.NoIPv6Error{What: "off", Need: "on"}
	for name, c := range map[string]struct {
		errs  service.PerFamily[error]
		whole bool
		want  int
		lines int
	}{
		"both":                 {whole: true, want: 2},
		"a part":               {errs: service.PerFamily[error]{service.IPv6: lacks(service.IPv6, unix.ENOENT)}, want: 1, lines: 1},
		"no part":              {errs: service.PerFamily[error]{service.IPv6: lacks(service.IPv6, unix.ENOENT)}, whole: true},
		"no part, of IPv6":     {errs: service.PerFamily[error]{service.IPv4: lacks(service.IPv4, unix.ENOENT)}, whole: true},
		"a node without IPv6":  {errs: service.PerFamily[error]{service.IPv6: lacks(service.IPv6, off)}, whole: true, want: 1, lines: 1},
		"of which IPv4 is bad": {errs: service.PerFamily[error]{lacks(service.IPv4, unix.ENOENT), lacks(service.IPv6, off)}, whole: true, lines: 1},
	} {
		core, lines := observer.New(zap.InfoLevel)
		var noted Lacks
		domains, err := eachFamily[*nftkernel.MissingError](zap.New(core), &noted, c.whole, func(family service.Family) (proxy.Domain, error) {
			return proxy.Domain{Family: family}, c.errs[family]
		})
		if len(domains) != c.want || (err == nil) != (c.want > 0) || lines.Len() != c.lines {
			t.Errorf("%s: %d domains and %d lines, %v; want %d and %d", name, len(domains), lines.Len(), err, c.want, c.lines)
		}
		for family, missing := range c.errs {
			if c.want == 1 && !errors.Is(noted[family], missing) {
				t.Errorf("%s: the reason for family %d is %v", name, family, noted[family])
			}
			if c.want == 0 && missing != nil && !errors.Is(err, missing) {
				t.Errorf("%s: %v does not say what family %d lacks", name, err, family)
			}
		}
	}
}

// TestChoice_OneLine: the choice of the mode and its reason are logged in one line.
func TestChoice_OneLine(t *testing.T) {
	const reach = "node ports answer on all addresses, localhost included,"
	kept := iptkernel.Former{Variant: iptkernel.NFT, Family: service.IPv4, ServicePorts: 12}
	dropped := iptkernel.Former{Variant: iptkernel.Legacy, Family: service.IPv6, ServicePorts: 3, ForwardDropped: true}
	for name, c := range map[string]struct {
		lacks  error
		former []iptkernel.Former
		lines  []string
	}{
		"a fresh node": {nil, []iptkernel.Former{{Variant: iptkernel.NFT}, {Variant: iptkernel.Legacy, ForwardDropped: true}}, []string{
			"mode not set; using nftables, which this kernel supports; node ports answer on all addresses, localhost included, as in iptables mode; " +
				"set mode (--proxy-mode) to select another"}},
		"iptables mode before": {nil, []iptkernel.Former{kept}, []string{
			"mode not set; using nftables, which this kernel supports; node ports answer on all addresses, localhost included, as in iptables mode, " +
				"which served this node until now (nft IPv4: chains of 12 Service ports); set mode: iptables (--proxy-mode iptables) to keep it"}},
		"a firewall": {nil, []iptkernel.Former{kept, dropped}, []string{
			"mode not set; using nftables, which this kernel supports; node ports answer on all addresses, localhost included, as in iptables mode, " +
				"which served this node until now (nft IPv4: chains of 12 Service ports, legacy IPv6: chains of 3 Service ports); set mode: iptables (--proxy-mode iptables) to keep it",
			"FORWARD policy DROP may block Service traffic in nftables mode"}},
		"an old kernel": {errors.New("Linux 5.6"), nil, []string{"mode not set; using iptables because the kernel lacks features required by nftables mode"}},
	} {
		core, lines := observer.New(zap.InfoLevel)
		(&Choice{Reach: reach, Former: c.former, Log: zap.New(core)}).explain(c.lacks)
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
	(*Choice)(nil).explain(nil) // there is no choice to explain
}

func TestHasFamily(t *testing.T) {
	files := sysctl.Files{Root: t.TempDir()} // a kernel without IPv6
	if err := hasFamily(service.IPv4, files); err != nil {
		t.Errorf("IPv4: %v", err)
	}
	missing, ok := errors.AsType[*nftkernel.MissingError](hasFamily(service.IPv6, files))
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
