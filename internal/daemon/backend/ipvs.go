package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// IPVSOptions are the settings of the IPVS backend.
type IPVSOptions struct {
	// Variant is that of iptables: "auto", "legacy" or "nft".
	Variant string
	// MasqueradeBit is the bit of the mark that asks for source NAT, 0 to 31.
	MasqueradeBit uint
	// Scheduler is the kernel's name of the scheduler of Services that ask for none.
	Scheduler string
	// Excluded are ranges of virtual servers that are somebody else's.
	Excluded []netip.Prefix
	// DrainDeadline is how long TCP endpoints that have left keep their connections
	// at most.
	DrainDeadline time.Duration
	// Timeouts are those of idle connections; 0 leaves them alone.
	Timeouts genl.Timeouts
	// StrictARP keeps the host from answering ARP for addresses of other interfaces.
	StrictARP bool
	// PrivateLock says that nobody else can reach these tables.
	PrivateLock bool
	// Sysctls are where kernel parameters are set; the zero value leaves no record
	// of what they were.
	Sysctls sysctl.Files
	Log     *zap.Logger
}

// IPVS finds out whether the node has what IPVS mode needs, prepares it, and builds
// one domain per family. It gives the variant of iptables that the rules are written
// with, too. There is no other mode to fall back to: whoever asks for this one wants
// its schedulers, and gets an error that says what is missing.
func IPVS(ctx context.Context, o IPVSOptions) ([]proxy.Domain, iptables.Variant, error) {
	if err := hasIPVS(); err != nil {
		return nil, "", fmt.Errorf("%w\nuse a kernel that has it, or --proxy-mode nftables", err)
	}
	variant, err := chooseVariant(ctx, o.Variant, o.PrivateLock, o.Log)
	if err != nil {
		return nil, "", err
	}
	if err := PrepareIPVS(ctx, o); err != nil {
		return nil, "", err
	}
	domains, err := eachFamily[*iptables.MissingError](o.Log, func(family service.Family) (proxy.Domain, error) {
		return ipvsDomain(ctx, family, variant, o)
	})
	return domains, variant, err
}

// hasIPVS tells what of IPVS and of sets the kernel lacks; it may load modules.
func hasIPVS() error {
	err := genl.Available()
	sets, setsErr := ipset.Open()
	if setsErr != nil {
		return errors.Join(err, setsErr)
	}
	return errors.Join(err, sets.Close())
}

func ipvsDomain(ctx context.Context, family service.Family, variant iptables.Variant, o IPVSOptions) (proxy.Domain, error) {
	tool, randomFully, err := iptablesTool(ctx, family, variant)
	if err != nil {
		return proxy.Domain{}, err
	}
	rules := iptables.NewWriter(family, tool, iptables.WriterConfig{Stages: stages(variant), Territory: IPVSTerritory()})
	name := fmt.Sprintf("ipvs/%s", family)
	writer, err := ipvs.NewWriter(family, ipvs.Config{
		Rules: rules, Excluded: o.Excluded,
		NearlyFull: func(l ipvs.SetLevel) {
			o.Log.Warn("a set is nearly full; Services whose entries do not fit are not served",
				zap.String("domain", name), zap.String("set", l.Set), zap.Int("entries", l.Entries), zap.Int("capacity", l.Capacity))
		},
	})
	if err != nil {
		return proxy.Domain{}, fmt.Errorf("IPVS mode in %s: %w", family, err)
	}
	renderer := ipvs.NewRenderer(family, ipvs.Options{Scheduler: o.Scheduler, MasqueradeBit: o.MasqueradeBit, RandomFully: randomFully})
	drainer := ipvs.NewDrainer(renderer, nil)
	return proxy.Domain{
		Name: name, Family: family, Renderer: drainer, Writer: &ipvsWriter{writer, drainer},
		Drain: drainer, DrainDeadline: o.DrainDeadline,
	}, nil
}

// ipvsWriter gives up with the writer what else the domain holds.
type ipvsWriter struct {
	*ipvs.Writer
	drainer *ipvs.Drainer
}

// Write writes, and lets the drainer know.
func (w *ipvsWriter) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	w.drainer.Writing()
	return w.Writer.Write(ctx, batch)
}

// Close gives the sockets up.
func (w *ipvsWriter) Close() error { return errors.Join(w.Writer.Close(), w.drainer.Close()) }
