package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
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
		asked                   Mode
		nftErr, iptErr, ipvsErr error
		want                    Mode
		called                  []string
		problem, log            string
	}{
		"best, modern kernel":           {asked: ModeBest, want: ModeNFTables, called: []string{"nft"}, log: "mode is not set: nftables, because the kernel has what it needs and it is faster; node ports answer here"},
		"best, old kernel":              {asked: ModeBest, nftErr: old, want: ModeIPTables, called: []string{"nft", "ipt"}, log: "Linux 5.6"},
		"best, neither":                 {asked: ModeBest, nftErr: old, iptErr: none, want: ModeIPTables, called: []string{"nft", "ipt"}, problem: "no iptables", log: "mode is not set: iptables, because"},
		"best, trouble of another kind": {asked: ModeBest, nftErr: unix.EPERM, want: ModeNFTables, called: []string{"nft"}, problem: "operation not permitted"},
		"nftables":                      {asked: ModeNFTables, want: ModeNFTables, called: []string{"nft"}},
		"nftables, old kernel":          {asked: ModeNFTables, nftErr: old, want: ModeNFTables, called: []string{"nft"}, problem: "Linux 5.6: operation not supported\nuse a kernel that has it, or --proxy-mode iptables"},
		"iptables":                      {asked: ModeIPTables, nftErr: old, want: ModeIPTables, called: []string{"ipt"}},
		"ipvs":                          {asked: ModeIPVS, want: ModeIPVS, called: []string{"ipvs"}},
		"ipvs, no fall-back":            {asked: ModeIPVS, ipvsErr: none, want: ModeIPVS, called: []string{"ipvs"}, problem: "no iptables"},
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

func TestModesKnown(t *testing.T) {
	for mode, known := range map[Mode]bool{ModeBest: true, ModeIPTables: true, ModeNFTables: true, ModeIPVS: true, "userspace": false, "NFTables": false} {
		if mode.Known() != known {
			t.Errorf("%q: known %v", mode, !known)
		}
	}
}
