package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Kernel parameters, below procSys. That folder shows each thread its own
// network namespace.
const (
	procSys       = "/proc/sys"
	routeLocalnet = "net/ipv4/conf/all/route_localnet"
	tcpBeLiberal  = "net/netfilter/nf_conntrack_tcp_be_liberal"
)

// EnsureRouteLocalnet lets packets for 127.0.0.0/8 leave through other
// interfaces, which node ports on localhost need (IPv4 only). It writes only
// when the value differs, so that a node where somebody has set it works with a
// read-only /proc/sys, and tells whether it did. It never sets it back.
func EnsureRouteLocalnet() (changed bool, err error) {
	return ensureSysctl(procSys, routeLocalnet, "1",
		"set it yourself, run privileged, or do without node ports on localhost "+
			"(iptables.localhostNodePorts: false, or nodePortAddresses without loopback addresses)")
}

// TCPBeLiberal tells whether conntrack lets TCP packets pass that it finds
// invalid, in which case nothing must drop those. Without conntrack in the
// kernel yet, its default applies: false.
func TCPBeLiberal() (bool, error) {
	value, err := readSysctl(procSys, tcpBeLiberal)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && value != "0", err
}

func ensureSysctl(root, name, value, advice string) (changed bool, err error) {
	now, err := readSysctl(root, name)
	if err == nil && now == value {
		return false, nil
	}
	if err == nil {
		err = os.WriteFile(root+"/"+name, []byte(value), 0)
	}
	if err != nil {
		return false, fmt.Errorf("set sysctl %s to %s: %w; %s", dotted(name), value, err, advice)
	}
	return true, nil
}

func readSysctl(root, name string) (string, error) {
	value, err := os.ReadFile(root + "/" + name)
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", dotted(name), err)
	}
	return strings.TrimSpace(string(value)), nil
}

// dotted gives the name as the sysctl program takes it.
func dotted(name string) string { return strings.ReplaceAll(name, "/", ".") }
