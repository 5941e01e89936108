package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

func renderCommand() *cobra.Command {
	var o options
	var dir, family string
	cmd := &cobra.Command{
		Use:   "render --manifests DIR [--proxy-mode MODE] [--family FAMILY]",
		Short: "Print the rules that would serve a directory of manifests, and touch nothing",
		Long: `Print the rules that Sluice would load for the Services, EndpointSlices and Nodes
that the YAML and JSON files in DIR describe. It needs no privilege and touches
nothing. With a mistake in any file nothing is printed but the mistakes.

In nftables mode, the default here, the rules are for nft -f, which replaces
Sluice's tables by them. In iptables mode they are for iptables-restore or
ip6tables-restore, and for tables that hold none of Sluice's rules yet; with
--noflush they leave everybody else's alone, but for KUBE-FIREWALL, which is the
kubelet's, too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkManifests(dir); err != nil {
				return err
			}
			if err := o.load(); err != nil {
				return err
			}
			if o.rendered() == backend.ModeIPVS {
				return usageError{errors.New(`--proxy-mode "ipvs": virtual servers, sets, addresses and rules have no text in common that could be printed and loaded; want nftables or iptables`)}
			}
			families, err := familiesOf(family, o.rendered())
			if err != nil {
				return err
			}
			p, err := o.picture(dir)
			if err != nil {
				return err
			}
			text, err := p.text(&o, families)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	o.flags = config.BindServing(cmd.Flags())
	cmd.Flags().StringVar(&dir, "manifests", "", "directory of manifests (*.yaml, *.yml, *.json)")
	cmd.Flags().StringVar(&family, "family", "", "ipv4 or ipv6; empty means both (nftables) or ipv4 (iptables)")
	return cmd
}

// checkManifests checks the flag that names the directory of manifests.
func checkManifests(dir string) error {
	if dir == "" {
		return usageError{fmt.Errorf("--manifests: name the directory that holds the manifests")}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usageError{fmt.Errorf("--manifests %s: not a directory that can be read", dir)}
	}
	return nil
}

// familiesOf checks the flag that names a family. One input for iptables-restore
// holds one.
func familiesOf(name string, mode backend.Mode) ([]service.Family, error) {
	switch {
	case name == "" && mode == backend.ModeNFTables:
		return service.Families[:], nil
	case name == "", name == "ipv4":
		return []service.Family{service.IPv4}, nil
	case name == "ipv6":
		return []service.Family{service.IPv6}, nil
	default:
		return nil, usageError{fmt.Errorf("--family %q: want ipv4 or ipv6", name)}
	}
}

// rendered is the backend whose rules are printed: nothing is probed here, so
// that the best one is nftables.
func (o *options) rendered() backend.Mode {
	if o.mode() == backend.ModeBest {
		return backend.ModeNFTables
	}
	return o.mode()
}

// picture is all that rules follow from, at one moment.
type picture struct {
	cache *source.Cache
	facts *service.NodeFacts
}

// picture reads the manifests and, where the flags make rules depend on them, the
// host's addresses.
func (o *options) picture(dir string) (*picture, error) {
	settings, err := o.NodeSettings(v1alpha1.ProxyMode(o.rendered()))
	if err != nil {
		return nil, err
	}
	log, err := newLogger(o.Log())
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be flushed
	cache, err := manifest.Load(dir, settings.Name, source.Options{
		IgnoreExternalIPs: !o.GateEnabled(config.GateAllowServiceExternalIPs),
		Warn: func(w service.Warning) {
			log.Warn("part of an object cannot be used", zap.String("object", w.Object), zap.String("field", w.Field), zap.String("problem", w.Problem))
		},
	})
	if err != nil {
		return nil, err
	}
	if cache.Node() == nil {
		log.Warn("no manifest describes this node, so its zone and addresses are not known; is --hostname-override right?",
			zap.String("node", settings.Name))
	}
	var hosts []netip.Addr
	if len(settings.NodePortRanges) > 0 {
		if hosts, err = hostaddress.List(); err != nil {
			return nil, err
		}
	}
	return &picture{cache, settings.Facts(cache.Node(), hosts, cache.ServiceCIDRs())}, nil
}

// text prints the rules of some families.
func (p *picture) text(o *options, families []service.Family) (string, error) {
	print := p.nftables
	if o.rendered() == backend.ModeIPTables {
		print = p.iptables
	}
	var names, texts []string
	for _, family := range families {
		text, err := print(o, family)
		if err != nil {
			return "", fmt.Errorf("%s: %w", family, err)
		}
		names, texts = append(names, family.String()), append(texts, text)
	}
	return fmt.Sprintf("# %s rules for %d Services on node %s, rendered by sluice %s.\n%s",
		strings.Join(names, " and "), len(p.cache.Keys()), p.facts.Name, version, strings.Join(texts, "")), nil
}

// nftables prints one table for nft, behind two lines that take away the one that
// may be there: to delete it, it has to be.
func (p *picture) nftables(o *options, family service.Family) (string, error) {
	renderer := nftables.NewRenderer(family, nftables.Options{MasqueradeBit: o.MasqueradeBit()})
	text, err := nftables.Text(family, render.Objects(renderer, nil, p.cache, p.facts))
	if err != nil {
		return "", err
	}
	table, _, _ := strings.Cut(text, " {\n")
	return table + "\ndelete " + table + "\n" + text, nil
}

// iptables prints the tables of one family for iptables-restore. All programs and
// kernels since iptables 1.6.2 and Linux 3.14 know --random-fully.
func (p *picture) iptables(o *options, family service.Family) (string, error) {
	liberal, err := iptables.TCPBeLiberal(sysctl.Files{})
	if err != nil {
		return "", err
	}
	renderer := iptables.NewRenderer(family, iptables.Options{
		MasqueradeBit: o.MasqueradeBit(), RandomFully: true, InvalidDropOmitted: liberal,
	})
	return iptables.Text(render.Objects(renderer, iptables.NewLayout(family), p.cache, p.facts))
}
