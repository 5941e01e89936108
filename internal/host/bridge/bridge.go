// SPDX-License-Identifier: Apache-2.0

// Package bridge finds bridges on which packets between containers bypass the node's rules. The kernel forwards a frame
// between two ports of a bridge without netfilter, unless module br_netfilter is loaded and a setting enables
// netfilter. Without netfilter, a container that gets an endpoint on its own bridge from a Service receives the answer
// from an unexpected address, because the answer bypasses the rules that translated the request. Package needs and the
// preflight call Find.
package bridge

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/sluice-proxy/sluice/service"
)

// Bridge is a bridge with containers.
type Bridge struct {
	Name string
	// Containers counts its ports that are veths.
	Containers int
	// Ranges are those of the bridge's addresses, without link-local ones.
	Ranges []netip.Prefix
	// Unruled are the families of these addresses for which frames between its ports bypass the rules.
	Unruled []service.Family
}

// settings are the sysctls of each family, and the options of a bridge that do the same for it.
var settings = service.PerFamily[struct{ sysctl, option string }]{
	service.IPv4: {"bridge-nf-call-iptables", "nf_call_iptables"},
	service.IPv6: {"bridge-nf-call-ip6tables", "nf_call_ip6tables"},
}

// Setting returns the name of the sysctl that takes frames of a family through the rules.
func Setting(family service.Family) string { return "net.bridge." + settings[family].sysctl }

// Find returns the bridges of this network namespace that have addresses and containers, by name. It reads rtnetlink
// and files, which takes milliseconds.
func Find() ([]Bridge, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	containers := make(map[int]int)
	for _, l := range links {
		if l.Type() == "veth" && l.Attrs().MasterIndex != 0 {
			containers[l.Attrs().MasterIndex]++
		}
	}
	var found []Bridge
	for _, l := range links {
		count := containers[l.Attrs().Index]
		if l.Type() != "bridge" || count == 0 {
			continue
		}
		b := Bridge{Name: l.Attrs().Name, Containers: count}
		if b.Ranges, err = ranges(l); err != nil {
			return nil, err
		}
		if len(b.Ranges) == 0 {
			continue
		}
		b.Unruled = b.unruled()
		found = append(found, b)
	}
	slices.SortFunc(found, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// ranges returns the ranges of an interface's addresses.
func ranges(l netlink.Link) ([]netip.Prefix, error) {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", l.Attrs().Name, err)
	}
	var list []netip.Prefix
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		if addr = addr.Unmap(); ok && !addr.IsLinkLocalUnicast() {
			list = append(list, netip.PrefixFrom(addr, bits).Masked())
		}
	}
	return list, nil
}

// unruled returns the families of the bridge's addresses that neither setting takes through the rules.
func (b *Bridge) unruled() []service.Family {
	var without []service.Family
	for _, family := range service.Families {
		has := slices.ContainsFunc(b.Ranges, func(r netip.Prefix) bool { return service.FamilyOf(r.Addr()) == family })
		// Without the module, neither file exists.
		if has && !isSet("/proc/sys/net/bridge", settings[family].sysctl) &&
			!isSet(filepath.Join("/sys/class/net", b.Name, "bridge"), settings[family].option) {
			without = append(without, family)
		}
	}
	return without
}

func isSet(folder, name string) bool {
	text, err := os.ReadFile(filepath.Join(folder, name))
	return err == nil && strings.TrimSpace(string(text)) == "1"
}
