package iptables

import (
	"errors"
	"io/fs"
)

// Kernel parameters, below /proc/sys. That folder shows each thread its own
// network namespace.
const (
	routeLocalnet = "net/ipv4/conf/all/route_localnet"
	tcpBeLiberal  = "net/netfilter/nf_conntrack_tcp_be_liberal"
)

// Sysctls are the kernel parameters of the process's network namespace, named by
// their paths below /proc/sys. Whoever hands them in decides what is kept of the
// values that are changed.
type Sysctls interface {
	// Read gives a value; fs.ErrNotExist for a parameter that is not there.
	Read(path string) (string, error)
	// Ensure sets a value unless it is there already, and tells whether it did.
	// The error names the parameter and ends with the advice.
	Ensure(path, value, advice string) (changed bool, err error)
}

// EnsureRouteLocalnet lets packets for 127.0.0.0/8 leave through other
// interfaces, which node ports on localhost need (IPv4 only), and tells whether it
// had to. It never sets it back.
func EnsureRouteLocalnet(s Sysctls) (changed bool, err error) {
	return s.Ensure(routeLocalnet, "1",
		"set it yourself, run privileged, or do without node ports on localhost "+
			"(iptables.localhostNodePorts: false, or nodePortAddresses without loopback addresses)")
}

// TCPBeLiberal tells whether conntrack lets TCP packets pass that it finds
// invalid, in which case nothing must drop those. Without conntrack in the
// kernel yet, its default applies: false.
func TCPBeLiberal(s Sysctls) (bool, error) {
	value, err := s.Read(tcpBeLiberal)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && value != "0", err
}
