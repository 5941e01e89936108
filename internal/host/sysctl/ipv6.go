package sysctl

import "fmt"

// NoIPv6Error says that the network namespace has no IPv6. It is conclusive until
// somebody changes the node.
type NoIPv6Error struct {
	What string
	// Need is what would do.
	Need string
}

// Error names what is missing, and what is needed to have it.
func (e *NoIPv6Error) Error() string { return fmt.Sprintf("%s; needed: %s", e.What, e.Need) }

// IPv6 finds out whether the network namespace has IPv6 at all; without, the error
// is a *NoIPv6Error. An address is proof enough; the sysctl alone is not, because
// single interfaces may differ from it.
func (f Files) IPv6() error {
	// /proc/net shows what the main thread sees.
	addresses, err := f.read(entry{path: "proc/thread-self/net/if_inet6"})
	if err != nil {
		return &NoIPv6Error{"the kernel has no IPv6", "a kernel with IPv6, started without ipv6.disable=1"}
	}
	disabled, err := f.Read("net/ipv6/conf/all/disable_ipv6")
	if err == nil && disabled == "1" && addresses == "" {
		return &NoIPv6Error{"IPv6 is switched off on all interfaces", "sysctl net.ipv6.conf.all.disable_ipv6=0"}
	}
	return nil // a sysctl that cannot be read says nothing against it
}
