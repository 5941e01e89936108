// SPDX-License-Identifier: Apache-2.0

// Package offline contains the commands that need no running proxy: it renders and explains the rules for manifests,
// and removes what proxies left.
package offline

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Render returns the rules for the manifests in a directory. Family is ipv4, ipv6 or
// empty, which means both in nftables mode and ipv4 in iptables mode. Nothing is probed,
// so that the default mode is nftables.
func Render(o *setup.Options, dir, family string) (string, error) {
	mode := o.Assumed()
	if mode.Text == nil {
		return "", setup.UsageError{Err: fmt.Errorf("--proxy-mode %q: cannot be printed, %s; must be nftables or iptables", mode.Name, mode.Unprintable)}
	}
	families, err := familiesOf(family, mode)
	if err != nil {
		return "", err
	}
	s, err := readState(o, dir, mode)
	if err != nil {
		return "", err
	}
	var names, texts []string
	for _, family := range families {
		objects, err := s.objects(family)
		if err != nil {
			return "", err
		}
		rules, err := mode.Text(family, objects)
		if err != nil {
			return "", fmt.Errorf("%s: %w", family, err)
		}
		names, texts = append(names, family.String()), append(texts, rules)
	}
	return fmt.Sprintf("# %s rules for %s on node %s, rendered by sluice %s.\n%s",
		strings.Join(names, " and "), plural.Of(len(s.cache.Keys()), "Service"), s.facts.Name, o.Version, strings.Join(texts, "")), nil
}

// familiesOf parses --family.
func familiesOf(name string, mode setup.Mode) ([]service.Family, error) {
	switch {
	case name == "" && !mode.OneFamily:
		return service.Families[:], nil
	case name == "", name == "ipv4":
		return []service.Family{service.IPv4}, nil
	case name == "ipv6":
		return []service.Family{service.IPv6}, nil
	default:
		return nil, setup.UsageError{Err: fmt.Errorf("--family %q: must be ipv4 or ipv6", name)}
	}
}

// offlineState is everything that determines the rules.
type offlineState struct {
	options *setup.Options
	mode    setup.Mode
	cache   *source.Cache
	facts   *service.NodeFacts
}

// readState reads the manifests and, if the rules depend on them, the host's addresses.
func readState(o *setup.Options, dir string, mode setup.Mode) (*offlineState, error) {
	settings, err := o.NodeSettings(mode.Name)
	if err != nil {
		return nil, err
	}
	log, err := logging.New(o.Log())
	if err != nil {
		return nil, err
	}
	cache, err := manifest.Load(dir, settings.Name, o.Objects(&setup.Backend{Mode: mode}, func(w service.Warning) { observe.LogWarning(log.Logger, w) }))
	if err != nil {
		return nil, err
	}
	if cache.Node() == nil {
		log.Warn("no Node object matches this node; its zone and addresses are unknown",
			zap.String("node", settings.Name))
	}
	hosts, err := hostsOf(settings, mode.HostDevice, cache.Node())
	if err != nil {
		return nil, err
	}
	return &offlineState{o, mode, cache, settings.Facts(cache.Node(), hosts, cache.ServiceCIDRs(), nil)}, nil
}

// hostsOf returns this host's addresses if rules depend on them. If the mode puts the addresses of Services on a
// device, the addresses in the node's manifest replace them, unless ranges limit node ports.
func hostsOf(settings proxy.NodeSettings, device string, node *service.NodeObject) ([]netip.Addr, error) {
	limited := slices.ContainsFunc(settings.NodePortRanges, func(r netip.Prefix) bool { return r.Bits() > 0 })
	switch {
	case settings.HostAddresses && node != nil && !limited:
		return node.Addresses, nil
	case settings.HostAddresses:
		return hostaddress.ListWithout(device)
	case limited:
		return hostaddress.List()
	default:
		return nil, nil
	}
}

// objects renders the manifests.
func (s *offlineState) objects(family service.Family) ([]dataplane.Object, error) {
	found, err := assumed()
	if err != nil {
		return nil, err
	}
	renderer, layout, err := s.mode.Renderer(s.options, family, found)
	if err != nil {
		return nil, err
	}
	return render.Objects(renderer, layout, render.Views(s.cache, s.facts), s.facts), nil
}

// assumed returns the features that rules depend on, without running iptables: iptables since 1.6.2 and kernels since
// Linux 3.14 support --random-fully.
func assumed() (backend.Found, error) {
	liberal, err := iptkernel.TCPBeLiberal(sysctl.Files{})
	return backend.Found{RandomFully: true, Liberal: liberal}, err
}
