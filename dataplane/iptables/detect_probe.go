package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Present tells whether the family can be served: listing POSTROUTING in nat
// must work. It gives nil, a *MissingError when the node has no such thing, or
// the *ToolError of a node that cannot answer at the moment.
func (e *Exec) Present(ctx context.Context) error {
	if err := familyPresent(e.family, "/proc"); err != nil {
		return err
	}
	_, err := e.run(ctx, nil, e.programs.iptables, "-w", fmt.Sprint(e.waitSeconds), "-t", string(NAT), "-S", "POSTROUTING")
	toolErr, ok := errors.AsType[*ToolError](err)
	if !ok || toolErr.Outcome == dataplane.Busy || toolErr.Outcome == dataplane.Unknown {
		return err
	}
	return &MissingError{
		Family: e.family,
		What:   "listing POSTROUTING in table nat failed",
		Need: "CAP_NET_ADMIN, and a kernel with the nat table of the " + string(e.Variant()) +
			" variant (kernel modules " + e.natModules() + ")",
		Err: err,
	}
}

// natModules names the kernel modules behind the nat table.
func (e *Exec) natModules() string {
	switch {
	case e.Variant() == NFT:
		return "nf_tables, nft_chain_nat and nft_compat"
	case e.family == service.IPv6:
		return "ip6_tables and ip6table_nat"
	}
	return "ip_tables and iptable_nat"
}

// familyPresent finds out whether the network namespace has IPv6 at all. An
// address is proof enough; the sysctl alone is not, because single interfaces
// may differ from it.
//
// It reads below thread-self, because /proc/net shows what the main thread
// sees.
func familyPresent(family service.Family, proc string) error {
	if family != service.IPv6 {
		return nil
	}
	addresses, err := os.ReadFile(proc + "/thread-self/net/if_inet6")
	if err != nil {
		return &MissingError{
			Family: family,
			What:   "the kernel has no IPv6",
			Need:   "a kernel with IPv6, started without ipv6.disable=1",
			Err:    err,
		}
	}
	disabled, err := os.ReadFile(proc + "/sys/net/ipv6/conf/all/disable_ipv6")
	if err == nil && strings.TrimSpace(string(disabled)) == "1" && len(addresses) == 0 {
		return &MissingError{
			Family: family,
			What:   "IPv6 is switched off on all interfaces",
			Need:   "sysctl net.ipv6.conf.all.disable_ipv6=0",
		}
	}
	return nil
}

// randomFullyKernel is the first kernel that obeys --random-fully in both
// families; older ones refuse it.
var randomFullyKernel = version{3, 14, 0}

// RandomFully tells whether MASQUERADE takes --random-fully here. It asks the
// program to check an input without committing it, and nothing is left behind.
// False without an error is a conclusive no.
func (e *Exec) RandomFully(ctx context.Context) (bool, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false, fmt.Errorf("ask for the kernel's version: %w", err)
	}
	if parseKernel(unix.ByteSliceToString(uts.Release[:])).less(randomFullyKernel) {
		return false, nil
	}
	const input = "*nat\n:KUBE-PROXY-CANARY - [0:0]\n" +
		"-A KUBE-PROXY-CANARY -j MASQUERADE --random-fully\nCOMMIT\n"
	_, err := e.run(ctx, []byte(input), e.programs.restore, "--test", "--noflush", "-w", fmt.Sprint(e.waitSeconds))
	toolErr, ok := errors.AsType[*ToolError](err)
	if ok && (toolErr.Outcome == dataplane.Rejected || toolErr.Outcome == dataplane.Unsupported) {
		return false, nil
	}
	return err == nil, err
}

// parseKernel reads the start of a kernel release: 6.1.0-18-amd64.
func parseKernel(release string) version {
	var v version
	// What is not a number stays zero: an unreadable release counts as old.
	_, _ = fmt.Sscanf(release, "%d.%d.%d", &v[0], &v[1], &v[2])
	return v
}
