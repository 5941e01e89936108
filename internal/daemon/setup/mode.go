// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// Mode contains everything in which one mode of the proxy differs from the others. Code outside of this package uses a
// Mode, and never compares names. The zero value is a mode that is not known yet.
type Mode struct {
	Name config.Mode
	Traits
	// domains builds the domains of a process, and returns the variant of iptables that they write. With whole, it is an
	// error if the kernel lacks a feature of one family only.
	domains func(ctx context.Context, s *start, whole bool) ([]proxy.Domain, iptkernel.Variant, error)
	// prepare does what needs full privileges, for --init-only.
	prepare func(ctx context.Context, s *start, whole bool) error
	// features lists this node's features for this mode; nil for none.
	features func(context.Context, *Options) []Feature
	// kept returns the kernel parameters that the proxy needs as long as it serves; nil for none.
	kept func(*Options) []backend.Parameter
	// Renderer returns the renderer of a family, as this mode's domain uses it, for a configuration and the features
	// found on a node, and an empty layout or nil. Userspace mode, which has no rules, renders as nftables mode does.
	Renderer func(o *Options, family service.Family, found backend.Found) (dataplane.Renderer, dataplane.Layout, error)
	// Text prints the objects of a family as input of a program; nil if none reads them, and Unprintable is why.
	Text        func(service.Family, []dataplane.Object) (string, error)
	Unprintable string
	// OneFamily means that one input of that program holds one family only.
	OneFamily bool
}

// Traits are the properties of a mode that other packages use.
type Traits struct {
	// Forwards means that this process forwards connections, so that the kernel translates none.
	Forwards bool
	// WithoutIPTables means that it serves without the programs of iptables.
	WithoutIPTables bool
	// DrainsItself reports whether its writer ends connections to leaving endpoints, instead of the conntrack cleaner.
	DrainsItself bool
	// Offloads means that it can offload connections.
	Offloads bool
	// Deprecated means that kube-proxy will remove it.
	Deprecated bool
	// CountsBytes means that it counts bytes without traffic.accounting, and CountsEndpoints that it counts by endpoint
	// without traffic.endpoints.
	CountsBytes, CountsEndpoints bool
	// ForgetsClients means that explain cannot read the kernel's memory of clients with session affinity.
	ForgetsClients bool
	// HostDevice is the device whose addresses are those of Services; empty for none.
	HostDevice string
	// LocalPorts means that listeners answer at node ports on localhost.
	LocalPorts bool
	// Accounts returns the packets that accounting objects of the kernel count; nil if none do.
	Accounts func() (map[string]uint64, error)
	// Traffic returns a function that reads the traffic that the kernel counts; nil if it counts none.
	Traffic func(*Options, []proxy.Domain) func(context.Context) service.PerFamily[*traffic.Reading]
	// Refusals are the reasons for which it counts refused packets or clients.
	Refusals []traffic.Reason
	// Lines describes an object in text. It is nil if the body of an object is text.
	Lines func(service.Family, *dataplane.Object) (where string, lines []string)
	// Element names an element of a set or map; nil if names are text.
	Element func(service.Family, dataplane.ID) (string, error)
	// LeavesOut reports whether the writer leaves a change out; nil for never.
	LeavesOut func(*dataplane.Change) bool
	// Tools print the kernel's state, in addition to those of iptables.
	Tools []Tool
	// Listing is a command that lists the rules in a sandbox; empty for that of iptables.
	Listing string
	// lacksHashing reports whether the kernel lacks what Services that hash need; nil for never.
	lacksHashing func(service.Family) bool
	// NeedsHostRoot means that only the host's root can use it, even in a sandbox.
	NeedsHostRoot bool
	// Keep names this mode's own rules, which a sweep leaves.
	Keep backend.Keep
	// Policy lists the requests of Services that this mode rejects, and those that need observed connections.
	Policy reduce.Policy
}

// Feature is something that a mode needs from the kernel or from programs. OK means that it is there.
type Feature struct {
	Name, Text string
	OK         bool
}

// Features returns this node's features for a mode, and changes nothing.
func (m *Mode) Features(ctx context.Context, o *Options) []Feature {
	if m.features == nil {
		return nil
	}
	return m.features(ctx, o)
}

// LacksHashing reports whether the kernel lacks what Services that hash need.
func (t *Traits) LacksHashing(family service.Family) bool {
	return t.lacksHashing != nil && t.lacksHashing(family)
}

// Tool is a command that prints state of the kernel, for a file of a support bundle.
type Tool struct {
	File    string
	Command []string
}

// start is what a process builds the domains of a mode from.
type start struct {
	*Options
	files      sysctl.Files
	forwarders *backend.Forwarders
	// tallies are nil for a process that writes nothing.
	tallies *backend.Tallies
	// lacks, unless nil, receives the reason why the mode does not serve a family.
	lacks *backend.Lacks
	log   *zap.Logger
}

// Modes are all modes.
func Modes() []Mode { return []Mode{NFTables, IPTables, IPVS, Userspace} }

// ModeNamed returns a mode by its name, and the zero value for another name.
func ModeNamed(name config.Mode) Mode {
	for _, m := range Modes() {
		if m.Name == name {
			return m
		}
	}
	return Mode{}
}

// Assumed returns the mode that a command without a kernel assumes: the configured one, and nftables mode by default.
func (o *Options) Assumed() Mode {
	if o.KubeProxy.Mode == config.ModeBest {
		return NFTables
	}
	return ModeNamed(o.KubeProxy.Mode)
}
