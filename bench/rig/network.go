// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// MakeLocal makes all addresses of the ranges addresses of a host, and lets it send from those of IPv6.
func MakeLocal(host *netns.Namespace, ranges ...netip.Prefix) error {
	err := host.Sysctl("net.ipv6.ip_nonlocal_bind", "1")
	return errors.Join(err, host.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, all := range ranges {
			route := &netlink.Route{
				Dst:       &net.IPNet{IP: all.Addr().AsSlice(), Mask: net.CIDRMask(all.Bits(), all.Addr().BitLen())},
				LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
			}
			if err := netlink.RouteAdd(route); err != nil {
				return fmt.Errorf("make %s local: %w", all, err)
			}
		}
		return nil
	}))
}

// IPTables returns a PATH in which iptables and the other names without a variant are the programs of a variant, nft or
// legacy. The names are links in the directory.
func IPTables(dir, variant string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, kind := range []string{"", "-save", "-restore"} {
			file, err := exec.LookPath(family + "-" + variant + kind)
			if err == nil {
				// The name by which these programs are called selects what they do.
				file, err = filepath.EvalSymlinks(file)
			}
			if err == nil {
				err = os.Symlink(file, filepath.Join(dir, family+kind))
			}
			if err != nil && !errors.Is(err, os.ErrExist) {
				return "", err
			}
		}
	}
	return dir + ":" + os.Getenv("PATH"), nil
}

// Address returns the address that many places after another.
func Address(first netip.Addr, n int) netip.Addr {
	b := first.AsSlice()
	for i := len(b) - 1; n > 0; i-- {
		n += int(b[i])
		b[i], n = byte(n), n>>8
	}
	a, _ := netip.AddrFromSlice(b) // b has the length of an address
	return a
}
