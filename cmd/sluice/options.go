package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/backend"
	"github.com/sluice-proxy/sluice/service"
)

// options are the flags that run and proxy have in common. Names, defaults and
// meanings are kube-proxy's (v1.36) where it has them.
type options struct {
	// nodeWait is how long the first rules wait for the Node object.
	nodeWait           time.Duration
	log                logOptions
	node               string
	mode               backend.Mode
	variant            string
	masqueradeBit      uint
	masqueradeAll      bool
	localhostNodePorts bool
	// localPorts is localhostNodePorts for nftables mode, in both families.
	localPorts bool
	detectLocal        string
	bridge             string
	prefix             string
	clusterCIDR        string
	nodePortAddresses  []string
	// sandboxed is not a flag of both: only run has it.
	sandboxed bool
	// ready, when set, is called once the backend is chosen.
	ready func(backend.Mode)
}

func (o *options) bind(flags *pflag.FlagSet) {
	o.log.bind(flags)
	flags.StringVar(&o.node, "hostname-override", "", "name of this node as the API knows it; empty means the host's name")
	bindMode(flags, &o.mode)
	flags.StringVar(&o.variant, "sluice-iptables-variant", "auto", "iptables programs: auto, legacy or nft")
	flags.UintVar(&o.masqueradeBit, "iptables-masquerade-bit", 14, "bit of the packet mark that asks for source NAT, 0 to 31")
	flags.BoolVar(&o.masqueradeAll, "masquerade-all", false, "source NAT for all ClusterIP traffic")
	flags.BoolVar(&o.localhostNodePorts, "iptables-localhost-nodeports", true, "let node ports answer on 127.0.0.1 (IPv4)")
	flags.BoolVar(&o.localPorts, "sluice-localhost-nodeports", true, "nftables mode: let node ports answer on 127.0.0.1 and ::1, too, through listeners of the proxy")
	flags.StringVar(&o.detectLocal, "detect-local-mode", "", "how packets of local pods are recognised: ClusterCIDR (default), NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	flags.StringVar(&o.bridge, "pod-bridge-interface", "", "bridge of the pods, for BridgeInterface")
	flags.StringVar(&o.prefix, "pod-interface-name-prefix", "", "prefix of the pods' interfaces, for InterfaceNamePrefix")
	flags.StringVar(&o.clusterCIDR, "cluster-cidr", "", "range of pod addresses, or a dual-stack pair separated by a comma")
	flags.StringSliceVar(&o.nodePortAddresses, "nodeport-addresses", nil, "ranges of host addresses on which node ports answer, or primary for the node's own; empty means all (iptables) or primary (nftables)")
}

// bindMode adds the flag that chooses the kernel backend.
func bindMode(flags *pflag.FlagSet, mode *backend.Mode) {
	flags.StringVar((*string)(mode), "proxy-mode", "", "kernel backend: nftables or iptables; empty means nftables where the kernel can, else iptables")
}

func unknownMode(mode backend.Mode) error {
	return usageError{fmt.Errorf("--proxy-mode %q: want nftables or iptables, or nothing for the better one that the kernel can", string(mode))}
}

// check refuses what cannot be, before anything is touched.
func (o *options) check() error {
	if _, err := o.log.config(); err != nil {
		return err
	}
	switch {
	case !o.mode.Known():
		return unknownMode(o.mode)
	case o.variant != "auto" && o.variant != "legacy" && o.variant != "nft":
		return usageError{fmt.Errorf("--sluice-iptables-variant %q: want auto, legacy or nft", o.variant)}
	case o.sandboxed && o.variant == "legacy" && os.Geteuid() != 0:
		// /proc/net/ip_tables_names is for the host's root alone.
		return usageError{errors.New("--sluice-iptables-variant legacy: works in a sandbox only for root; use nft")}
	case o.masqueradeBit > 31:
		return usageError{fmt.Errorf("--iptables-masquerade-bit %d: want 0 to 31", o.masqueradeBit)}
	}
	_, err := o.settings(o.mode)
	return err
}

// checkDetectLocal checks the flags about packets of local pods.
func (o *options) checkDetectLocal() error {
	missing := ""
	switch mode := proxy.DetectLocal(o.detectLocal); {
	case mode == proxy.DetectBridgeInterface && o.bridge == "":
		missing = "--pod-bridge-interface"
	case mode == proxy.DetectInterfaceNamePrefix && o.prefix == "":
		missing = "--pod-interface-name-prefix"
	case !slices.Contains(detectLocalModes, mode):
		return usageError{fmt.Errorf("--detect-local-mode %q: want ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", mode)}
	}
	if missing != "" {
		return usageError{fmt.Errorf("--detect-local-mode %s: needs %s", o.detectLocal, missing)}
	}
	return nil
}

// detectLocalModes are what the flag may say; empty is the default.
var detectLocalModes = []proxy.DetectLocal{
	"", proxy.DetectClusterCIDR, proxy.DetectNodeCIDR, proxy.DetectBridgeInterface, proxy.DetectInterfaceNamePrefix,
}

// settings checks the flags about the node, and gives what they mean in a mode.
func (o *options) settings(mode backend.Mode) (proxy.NodeSettings, error) {
	name, err := o.nodeName()
	if err != nil {
		return proxy.NodeSettings{}, err
	}
	if err := o.checkDetectLocal(); err != nil {
		return proxy.NodeSettings{}, err
	}
	s := proxy.NodeSettings{
		Name: name, DetectLocal: proxy.DetectLocal(o.detectLocal), Interface: o.bridge,
		MasqueradeAll: o.masqueradeAll,
	}
	if s.DetectLocal == proxy.DetectInterfaceNamePrefix {
		s.Interface = o.prefix
	}
	if s.ClusterCIDRs, err = clusterCIDRs(o.clusterCIDR); err != nil {
		return s, err
	}
	if s.NodePortPrimary = o.primaryNodePorts(mode); s.NodePortPrimary {
		return s, nil
	}
	for _, text := range o.nodePortAddresses {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			return s, usageError{fmt.Errorf("--nodeport-addresses: %q: want ranges like 192.168.0.0/24", text)}
		}
		s.NodePortRanges = append(s.NodePortRanges, r.Masked())
	}
	s.LocalhostNodePorts = o.localhostNodePorts && servesLoopback(s.NodePortRanges)
	return s, nil
}

// primaryNodePorts tells whether node ports answer on the node's own addresses
// alone: asked for, or by default in nftables mode (as kube-proxy).
func (o *options) primaryNodePorts(mode backend.Mode) bool {
	if len(o.nodePortAddresses) == 0 {
		return mode == backend.ModeNFTables
	}
	return len(o.nodePortAddresses) == 1 && o.nodePortAddresses[0] == "primary"
}

// servesLoopback tells whether the ranges of IPv4 hold a loopback address; none
// means everything.
func servesLoopback(ranges []netip.Prefix) bool {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	some := false
	for _, r := range ranges {
		if r.Addr().Is4() {
			some = true
			if r.Overlaps(loopback) {
				return true
			}
		}
	}
	return !some
}

func (o *options) nodeName() (string, error) {
	name := o.node
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("cannot find the host's name: %w; set --hostname-override", err)
		}
		name = host
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", usageError{fmt.Errorf("--hostname-override: blank")}
	}
	return name, nil
}

// clusterCIDRs parses one range, or one of each family.
func clusterCIDRs(text string) (cidrs service.PerFamily[netip.Prefix], err error) {
	if text == "" {
		return cidrs, nil
	}
	for _, part := range strings.Split(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return cidrs, usageError{fmt.Errorf("--cluster-cidr: %q: want a range like 10.244.0.0/16, or one of each family separated by a comma", part)}
		}
		family := service.FamilyOf(p.Addr())
		if cidrs[family].IsValid() {
			return cidrs, usageError{fmt.Errorf("--cluster-cidr: %q: two ranges must be of different families", text)}
		}
		cidrs[family] = p.Masked()
	}
	return cidrs, nil
}
