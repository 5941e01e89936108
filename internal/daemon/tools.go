package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/demo"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Render returns the rules for the manifests in a directory. Family is ipv4, ipv6 or
// empty, which means both in nftables mode and ipv4 in iptables mode. Nothing is probed,
// so that the default mode is nftables.
func Render(o *Options, dir, family string) (string, error) {
	mode := o.KubeProxy.Mode
	if mode == config.ModeBest {
		mode = config.ModeNFTables
	}
	if mode == config.ModeIPVS {
		return "", UsageError{errors.New(`--proxy-mode "ipvs": cannot be printed, because virtual servers, sets, ` +
			"addresses and rules have no common text format; want nftables or iptables")}
	}
	families, err := familiesOf(family, mode)
	if err != nil {
		return "", err
	}
	p, err := readPicture(o, dir, mode)
	if err != nil {
		return "", err
	}
	text := p.nftables
	if mode == config.ModeIPTables {
		text = p.iptables
	}
	var names, texts []string
	for _, family := range families {
		rules, err := text(family)
		if err != nil {
			return "", fmt.Errorf("%s: %w", family, err)
		}
		names, texts = append(names, family.String()), append(texts, rules)
	}
	return fmt.Sprintf("# %s rules for %d Services on node %s, rendered by sluice %s.\n%s",
		strings.Join(names, " and "), len(p.cache.Keys()), p.facts.Name, o.Version, strings.Join(texts, "")), nil
}

// familiesOf parses --family. One input of iptables-restore holds one family.
func familiesOf(name string, mode config.Mode) ([]service.Family, error) {
	switch {
	case name == "" && mode == config.ModeNFTables:
		return service.Families[:], nil
	case name == "", name == "ipv4":
		return []service.Family{service.IPv4}, nil
	case name == "ipv6":
		return []service.Family{service.IPv6}, nil
	default:
		return nil, UsageError{fmt.Errorf("--family %q: want ipv4 or ipv6", name)}
	}
}

// picture is everything that determines the rules.
type picture struct {
	*Options
	cache *source.Cache
	facts *service.NodeFacts
}

// readPicture reads the manifests and, if the rules depend on them, the host's addresses.
func readPicture(o *Options, dir string, mode config.Mode) (*picture, error) {
	settings, err := o.NodeSettings(mode)
	if err != nil {
		return nil, err
	}
	log, err := newLogger(o.Log())
	if err != nil {
		return nil, err
	}
	cache, err := manifest.Load(dir, settings.Name, source.Options{
		IgnoreExternalIPs: !o.GateEnabled(config.GateAllowServiceExternalIPs),
		Warn:              func(w service.Warning) { warnObject(log.Logger, w) },
	})
	if err != nil {
		return nil, err
	}
	if cache.Node() == nil {
		log.Warn("no manifest describes this node, so its zone and addresses are unknown; is --hostname-override right?",
			zap.String("node", settings.Name))
	}
	var hosts []netip.Addr
	if len(settings.NodePortRanges) > 0 {
		if hosts, err = hostaddress.List(); err != nil {
			return nil, err
		}
	}
	return &picture{o, cache, settings.Facts(cache.Node(), hosts, cache.ServiceCIDRs())}, nil
}

// nftables returns one table for nft, after two lines that delete a table of that name. It
// has to exist to be deleted.
func (p *picture) nftables(family service.Family) (string, error) {
	renderer := nftables.NewRenderer(family, nftables.Options{MasqueradeBit: p.MasqueradeBit()})
	text, err := nftables.Text(family, render.Objects(renderer, nil, p.cache, p.facts))
	if err != nil {
		return "", err
	}
	table, _, _ := strings.Cut(text, " {\n")
	return table + "\ndelete " + table + "\n" + text, nil
}

// iptables returns the tables of one family for iptables-restore. All programs since
// iptables 1.6.2 and kernels since Linux 3.14 know --random-fully.
func (p *picture) iptables(family service.Family) (string, error) {
	liberal, err := iptables.TCPBeLiberal(sysctl.Files{})
	if err != nil {
		return "", err
	}
	renderer := iptables.NewRenderer(family, iptables.Options{
		MasqueradeBit: p.MasqueradeBit(), RandomFully: true, InvalidDropOmitted: liberal,
	})
	return iptables.Text(render.Objects(renderer, iptables.NewLayout(family), p.cache, p.facts))
}

// CleanUp removes the rules of all modes, restores kernel settings, and prints what was
// there. It fails if a proxy is running. The settings come last: rules may depend on them.
func CleanUp(ctx context.Context, o *Options, out io.Writer) error {
	release, err := takeAlone(o.Force)
	if err != nil {
		return err
	}
	defer release()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIANT\tFAMILY\tHOOKS\tCHAINS IN NAT\tIN FILTER\tIN MANGLE")
	ofIPVS, err := backend.CleanUp(ctx, func(variant string, family service.Family, s iptables.CleanupSummary) {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\n", variant, family, s.Hooks,
			s.Chains[iptables.NAT], s.Chains[iptables.Filter], s.Chains[iptables.Mangle])
	})
	fmt.Fprintln(table, "\nNFTABLES\tFAMILY\tTABLE")
	nftErr := backend.CleanUpNFTables(func(family service.Family, removed bool) {
		fmt.Fprintf(table, "\t%s\t%s\n", family, removedOr(removed))
	})
	fmt.Fprintln(table, "\nIPVS\tVIRTUAL SERVERS\tSETS\tDEVICE")
	fmt.Fprintf(table, "\t%d\t%d\t%s\n", ofIPVS.Servers, ofIPVS.Sets, removedOr(ofIPVS.Device))
	return errors.Join(err, nftErr, o.restore(table), table.Flush())
}

func removedOr(removed bool) string {
	if removed {
		return "removed"
	}
	return "none"
}

// restore restores kernel settings, and prints those that differed.
func (o *Options) restore(table io.Writer) error {
	done, err := sysctl.Files{Record: sysctl.NewRecord(o.Sluice.State.Dir, nil)}.Restore()
	if len(done) > 0 {
		fmt.Fprintln(table, "\nKERNEL SETTING\tFROM\tTO")
	}
	for _, d := range done {
		if d.Kept != "" {
			fmt.Fprintf(table, "%s\t%s\tkept: another program has set it since; it was %s\n", d.Name, d.Kept, d.To)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", d.Name, d.From, d.To)
	}
	return err
}

// Demo tells the story of package demo, inside a sandbox. Without verbose it logs nothing:
// the story speaks for itself, and its panics are intended.
func Demo(ctx context.Context, o *Options, out io.Writer, verbose bool) error {
	log := zap.NewNop()
	if verbose {
		opened, err := newLogger(o.Log())
		if err != nil {
			return err
		}
		log = opened.Logger
	}
	release, err := takeAlone(false)
	if err != nil {
		return err
	}
	defer release()
	return demo.Tell(ctx, out, log, func(ctx context.Context, log *zap.Logger) ([]proxy.Domain, error) {
		choice := &backend.Choice{Reach: "node ports answer on all addresses", Log: log}
		_, domains, err := backend.Build(o.KubeProxy.Mode, choice, backend.Builders{
			NFTables: func() ([]proxy.Domain, error) {
				return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: 14, Log: log})
			},
			IPTables: func() ([]proxy.Domain, error) {
				return backend.IPTables(ctx, backend.IPTablesOptions{Variant: "auto", MasqueradeBit: 14, Log: log})
			},
		})
		return domains, err
	})
}
