// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// NFTablesOptions are the settings of the nftables backend.
type NFTablesOptions struct {
	// MasqueradeBit is the packet mark bit that requests source NAT, 0 to 31.
	MasqueradeBit uint
	// CountEndpoints counts new connections by endpoint as well.
	CountEndpoints bool
	// HashSeed is the seed of the hashes of clients.
	HashSeed uint32
	// Tallies are those of the process; nil for new ones.
	Tallies *Tallies
	// LocalPorts lets node ports of a family answer on 127.0.0.1 or ::1 too.
	LocalPorts service.PerFamily[bool]
	// Sockets of the previous mode are used before new ones are opened on localhost; nil for none.
	Sockets *relay.Sockets
	// DryRun changes nothing on the node: the domains are for reading.
	DryRun bool
	// Whole makes it an error if the kernel lacks a feature of one family only. Otherwise the other
	// family is served.
	Whole bool
	// Lacks, unless nil, receives the reason why a family is not served.
	Lacks *Lacks
	Log   *zap.Logger
}

// NFTables probes the kernel for what each family needs, and builds one domain per family.
// A node without one family is served in the other; see Whole. If neither works, the error names each
// missing feature and the kernel that has it.
func NFTables(_ context.Context, o NFTablesOptions) ([]proxy.Domain, error) {
	starts := nftkernel.NewStarts()
	if o.Tallies == nil {
		o.Tallies = NewTallies()
	}
	probe := HasNFTables
	if o.DryRun {
		probe = checkNFTables
	}
	domains, err := eachFamily[*nftkernel.MissingError](o.Log, o.Lacks, o.Whole, func(family service.Family) (proxy.Domain, error) {
		if err := probe(family); err != nil {
			return proxy.Domain{}, err
		}
		return nftablesDomain(family, starts, o), nil
	})
	if err == nil && !o.DryRun { // these hold listeners, and nothing in the kernel
		domains = append(domains, localPorts(domains, o)...)
	}
	return domains, advised(err, o.Whole)
}

// PrepareNFTables only probes the kernel (--init-only).
func PrepareNFTables(whole bool) error {
	_, err := eachFamily[*nftkernel.MissingError](zap.NewNop(), nil, whole, func(family service.Family) (proxy.Domain, error) {
		return proxy.Domain{}, HasNFTables(family)
	})
	return advised(err, whole)
}

// advised adds a remedy to what the kernel lacks, unless another mode is tried instead.
func advised(err error, whole bool) error {
	if _, lacks := errors.AsType[*nftkernel.MissingError](err); lacks && !whole {
		return &AdvisedError{err, "use a kernel that supports it, or --proxy-mode iptables"}
	}
	return err
}

// HasNFTables probes the kernel for what a family needs. The error names each missing feature.
func HasNFTables(family service.Family) error {
	if err := hasFamily(family, sysctl.Files{}); err != nil {
		return err
	}
	return nftkernel.Probe(family, nil)
}

// checkNFTables is HasNFTables for a process that writes nothing.
func checkNFTables(family service.Family) error {
	if err := hasFamily(family, sysctl.Files{}); err != nil {
		return err
	}
	return nftkernel.Check(family)
}

// LacksHashing reports whether the kernel lacks what Services that hash need in nftables mode. It changes nothing.
func LacksHashing(family service.Family) bool {
	_, lacks := errors.AsType[*nftkernel.MissingError](nftkernel.CheckHashing(family))
	return lacks
}

// hasFamily returns an error if the node lacks a family: nf_tables accepts rules for IPv6
// even if that is disabled.
func hasFamily(family service.Family, files sysctl.Files) error {
	if family != service.IPv6 {
		return nil
	}
	err := files.IPv6()
	if missing, ok := errors.AsType[*sysctl.NoIPv6Error](err); ok {
		return &nftkernel.MissingError{Family: family, Feature: "IPv6", Need: missing.Need, Err: err}
	}
	return err
}

// auditPause is the pause between audits in nftables mode. The kernel announces changes by
// other programs, and a lost announcement causes an audit, so this guards only against the
// unforeseen. During an audit nothing is written: 0.3 s for 100,000 elements.
const auditPause = 5 * time.Minute

func nftablesDomain(family service.Family, starts *nftkernel.Starts, o NFTablesOptions) proxy.Domain {
	name := fmt.Sprintf("nftables/%s", family)
	return proxy.Domain{
		Name:     name,
		Family:   family,
		Pace:     aggregator.Pace{Audit: auditPause},
		Renderer: o.Renderer(family),
		Writer: nftkernel.NewWriter(family, nftkernel.WriterConfig{
			Starts: starts, Tally: o.Tallies[family],
			Progress: func(landed, all int) {
				o.Log.Info("large batch under way", zap.String("domain", name), zap.Int("landed", landed), zap.Int("all", all))
			},
		}).Contract(),
	}
}

// Tallies contain the counts of the writers of nftables mode, by family. They continue when another server of the
// process takes over.
type Tallies service.PerFamily[*nftkernel.Tally]

// NewTallies returns tallies that begin now.
func NewTallies() *Tallies {
	t := &Tallies{}
	for _, family := range service.Families {
		t[family] = nftkernel.NewTally()
	}
	return t
}

// Traffic returns what the kernel counted in the domains of nftables or iptables mode. In a family that cannot
// be read it is nil.
func Traffic(ctx context.Context, domains []proxy.Domain) (all service.PerFamily[*traffic.Reading]) {
	for _, d := range domains {
		if d.Writer.Traffic == nil {
			continue
		}
		if reading, err := d.Writer.Traffic(ctx); err == nil {
			all[d.Family] = &reading
		}
	}
	return all
}

// localPorts builds the domains that let node ports answer on localhost, for the families that are
// served and want it.
func localPorts(served []proxy.Domain, o NFTablesOptions) []proxy.Domain {
	var domains []proxy.Domain
	for _, d := range served {
		if !o.LocalPorts[d.Family] {
			continue
		}
		if err := localport.Probe(d.Family, nil); err != nil {
			o.Log.Info("node ports do not answer on localhost", zap.Stringer("family", d.Family), zap.Error(err))
			continue
		}
		report := func(f relay.Failure) {
			o.Log.Warn("failed to forward a node port connection on localhost", zap.String("listener", f.Listener), zap.Error(f.Err))
		}
		domains = append(domains, proxy.Domain{
			Name: fmt.Sprintf("localport/%s", d.Family), Family: d.Family, Auxiliary: true,
			Renderer: localport.NewRenderer(d.Family),
			Writer:   localport.NewWriter(d.Family, localport.Config{Sockets: o.Sockets, Report: report}).Contract(),
		})
	}
	return domains
}
