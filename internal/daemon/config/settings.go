// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
	netutils "k8s.io/utils/net"

	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// loopback4 and loopback6 hold the loopback addresses.
var loopback4, loopback6 = netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")

// NodeName returns the name of this node: the configured one, or the host's.
func (c *Config) NodeName() (string, error) {
	name := c.KubeProxy.HostnameOverride
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("cannot determine the host's name: %w; set --hostname-override", err)
		}
		name = host
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", errors.New("the host name is empty; set --hostname-override")
	}
	return name, nil
}

// NodeSettings returns the configured facts about this node for the backend that serves:
// the configured one, or the one chosen for ModeBest. The error is that of NodeName.
//
// The meaning of a setting follows from the configured mode alone: if a file names no
// mode, node ports respond on all addresses, as in kube-proxy's iptables mode, even if
// Sluice chose nftables.
func (c *Config) NodeSettings(backend Mode) (proxy.NodeSettings, error) {
	name, err := c.NodeName()
	if err != nil {
		return proxy.NodeSettings{}, err
	}
	k := &c.KubeProxy
	s := proxy.NodeSettings{
		Name: name, DetectLocal: proxy.DetectLocal(k.DetectLocalMode), MasqueradeAll: c.MasqueradeAll(),
		ExternalIPsInServiceCIDR: c.Sluice.Addresses.ExternalIPsInServiceCIDR,
		HostAddresses:            backend == ModeIPVS || backend == ModeUserspace,
		Limit:                    service.Limit{Objects: int(c.Sluice.Actors.ObjectsMax)},
	}
	switch backend {
	case ModeIPTables:
		s.Limit.Layout = service.EndpointsOnce
	case ModeIPVS:
		s.Limit.Layout = service.EndpointsEach
	}
	switch s.DetectLocal {
	case proxy.DetectClusterCIDR:
		s.ClusterCIDRs = clusterCIDRs(k.ClusterCIDR)
	case proxy.DetectBridgeInterface:
		s.Interface = k.DetectLocal.BridgeInterface
	case proxy.DetectInterfaceNamePrefix:
		s.Interface = k.DetectLocal.InterfaceNamePrefix
	}
	if address := parseAddress(k.BindAddress); !address.IsUnspecified() {
		s.Address = address
	}
	s.NodePortPrimary, s.NodePortRanges = c.nodePorts()
	s.LocalhostNodePorts = (backend == ModeIPTables || backend == ModeUserspace) && *k.IPTables.LocalhostNodePorts &&
		servesLoopback(s.NodePortPrimary, s.NodePortRanges)
	if *c.Sluice.SelfTest.Enabled && (backend == ModeNFTables || backend == ModeIPTables) {
		s.SelfTest = service.PreferredSelfTest
	}
	return s, nil
}

// nodePorts returns the addresses on which node ports respond: the node's own addresses, those in
// some ranges, or both; without either, all addresses.
func (c *Config) nodePorts() (primary bool, ranges []netip.Prefix) {
	for _, text := range c.KubeProxy.NodePortAddresses {
		switch text {
		case nodePortPrimary:
			primary = true
		case nodePortLocalhost:
			ranges = append(ranges, loopback4, loopback6)
		case nodePortAll:
			ranges = append(ranges, netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		default:
			ranges = append(ranges, parseRanges([]string{text})...)
		}
	}
	return primary, ranges
}

// NamesLoopback reports whether an entry of nodePortAddresses names only loopback addresses.
func NamesLoopback(entry string) bool {
	r, isRange := parseRange(entry)
	return entry == nodePortLocalhost || isRange && r.Addr().IsLoopback()
}

// ForwardsLocalhost reports in which families node ports answer on localhost in nftables mode. That
// takes a forwarder, which occupies their ports. kube-proxy's feature gate enables it in each family
// that has an explicit loopback address in nodePortAddresses.
func (c *Config) ForwardsLocalhost() (forwards service.PerFamily[bool]) {
	_, ranges := c.nodePorts()
	gate, field := c.GateEnabled(GateNFTablesLocalhost), c.localhostByField()
	for _, family := range service.Families {
		forwards[family] = field || gate && slices.ContainsFunc(ranges, func(r netip.Prefix) bool {
			return service.FamilyOf(r.Addr()) == family && r.Addr().IsLoopback()
		})
	}
	return forwards
}

// localhostByField reports whether nftables.localhostNodePorts enables the forwarder, in both families: if it is set,
// or by default without a mode, because iptables mode may have answered on localhost before. nodePortAddresses without
// loopback addresses disable it, except primary in nftables mode, where that is the default.
func (c *Config) localhostByField() bool {
	primary, ranges := c.nodePorts()
	if c.KubeProxy.Mode == ModeBest && !*c.KubeProxy.IPTables.LocalhostNodePorts {
		return false // written for iptables mode, without localhost
	}
	if !*c.Sluice.NFTables.LocalhostNodePorts {
		return false
	}
	if len(ranges) == 0 {
		return !primary || c.KubeProxy.Mode == ModeNFTables // where primary is the default
	}
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool {
		return r.Overlaps(loopback4) || r.Contains(netip.IPv6Loopback())
	})
}

// servesLoopback reports whether node ports respond on an IPv4 loopback address. Without primary and
// IPv4 ranges, they respond on all addresses.
func servesLoopback(primary bool, ranges []netip.Prefix) bool {
	is4 := func(r netip.Prefix) bool { return r.Addr().Is4() }
	return !primary && !slices.ContainsFunc(ranges, is4) || slices.ContainsFunc(ranges, loopback4.Overlaps)
}

// MasqueradeBit returns the bit of the packet mark that asks for source NAT.
func (c *Config) MasqueradeBit() uint {
	if c.KubeProxy.Mode == ModeNFTables {
		return uint(*c.KubeProxy.NFTables.MasqueradeBit)
	}
	return uint(*c.KubeProxy.IPTables.MasqueradeBit)
}

// MasqueradeAll reports whether all ClusterIP traffic gets source NAT.
func (c *Config) MasqueradeAll() bool {
	if c.KubeProxy.Mode == ModeNFTables {
		return c.KubeProxy.NFTables.MasqueradeAll
	}
	return c.KubeProxy.IPTables.MasqueradeAll
}

// Scheduler returns the IPVS scheduler for Services that ask for none.
func (c *Config) Scheduler() string {
	if name := c.KubeProxy.IPVS.Scheduler; name != "" {
		return name
	}
	return "rr"
}

// ExcludedCIDRs returns the ranges of virtual servers that belong to other programs.
func (c *Config) ExcludedCIDRs() []netip.Prefix { return parseRanges(c.KubeProxy.IPVS.ExcludeCIDRs) }

// HealthPort returns the port at which the health server answers clients of other hosts; 0 if it is disabled or
// listens on localhost.
func (c *Config) HealthPort() uint16 {
	host, port, err := net.SplitHostPort(c.KubeProxy.HealthzBindAddress)
	if err != nil || netutils.ParseIPSloppy(host).IsLoopback() {
		return 0
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(number)
}

// DeniedAddresses returns the configured ranges that Services may not use.
func (c *Config) DeniedAddresses() []netip.Prefix { return parseRanges(c.Sluice.Addresses.Denied) }

// DeniedPorts returns the TCP ports that no Service gets at an external IP or a load balancer IP: the configured ones, and
// those of Sluice's own listen addresses, which are the same on all nodes.
func (c *Config) DeniedPorts() (ports []uint16) {
	for _, port := range c.Sluice.Addresses.DeniedPorts {
		ports = append(ports, uint16(port)) // checked
	}
	for _, address := range []string{
		c.KubeProxy.MetricsBindAddress, c.KubeProxy.HealthzBindAddress, c.Sluice.Healthz.ProbeAddress, c.Sluice.Inspection.BindAddress,
	} {
		if _, text, err := net.SplitHostPort(address); err == nil {
			if number, err := strconv.ParseUint(text, 10, 16); err == nil && number > 0 {
				ports = append(ports, uint16(number))
			}
		}
	}
	return ports
}

// parseRanges parses checked ranges.
func parseRanges(texts []string) (ranges []netip.Prefix) {
	for _, text := range texts {
		if r, ok := parseRange(text); ok {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// clusterCIDRs parses a checked clusterCIDR.
func clusterCIDRs(text string) (cidrs service.PerFamily[netip.Prefix]) {
	for _, r := range parseRanges(strings.Split(text, ",")) {
		cidrs[service.FamilyOf(r.Addr())] = r
	}
	return cidrs
}

// The formats of the log.
const (
	FormatAuto    = "auto"
	FormatConsole = "console"
	FormatJSON    = "json"
	FormatText    = "text"
)

// Log specifies what is logged, how and where.
type Log struct {
	// Level is the lowest level that is logged: debug, info, warn or error.
	Level string
	// Format is auto, console, json or text, which is klog's.
	Format string
	// Verbosity is klog's, for the libraries that write to it.
	Verbosity int
	// OwnVerbosity is the verbosity of Sluice's own lines.
	OwnVerbosity int
	// VModule is klog's verbosity by file.
	VModule logsapi.VModuleConfiguration
	// SplitStream sends lines other than errors to standard output.
	SplitStream bool
}

// DebugVerbosity is the lowest klog verbosity at which Kubernetes components log for
// debugging (Kubernetes logging conventions).
const DebugVerbosity = 4

// Log returns the log settings: Sluice's own where they are set, otherwise those derived
// from kube-proxy's. If Sluice's level is set, it applies to Sluice's own lines, and the
// verbosity to those of libraries.
func (c *Config) Log() Log {
	k := &c.KubeProxy.Logging
	l := Log{
		Level: cmp.Or(c.Sluice.Log.Level, "info"), Format: c.Sluice.Log.Format,
		Verbosity: int(k.Verbosity), OwnVerbosity: int(k.Verbosity), VModule: k.VModule,
	}
	switch c.Sluice.Log.Level {
	case "":
	case "debug":
		l.OwnVerbosity = max(l.OwnVerbosity, DebugVerbosity)
	default:
		l.OwnVerbosity = 0
	}
	if l.Format == "" {
		l.Format = FormatText
		if k.Format == logsapi.JSONLogFormat {
			l.Format = FormatJSON
		}
	}
	if l.Format == FormatJSON {
		l.SplitStream = k.Options.JSON.SplitStream
	} else {
		l.SplitStream = k.Options.Text.SplitStream
	}
	return l
}
