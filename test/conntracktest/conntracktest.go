// SPDX-License-Identifier: Apache-2.0

// Package conntracktest fills connection tables for tests.
package conntracktest

import (
	"errors"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// Tracked is a flow that a test adds to the kernel's connection table, as if the kernel had translated it.
type Tracked struct {
	Protocol uint8
	// Client and Destination are the addresses in the client's packets. Answerer and Source are the source and destination
	// of answers.
	Client, Destination, Answerer, Source netip.AddrPort
}

// Inject adds answered flows of one family to the connection table of a namespace.
func Inject(t testing.TB, n *netns.Namespace, flows []Tracked) {
	t.Helper()
	err := n.Do(func() error {
		s, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
		if err != nil {
			return err
		}
		defer s.Close() // the kernel acknowledged all messages
		const perRequest = 256
		for len(flows) > 0 {
			some := flows[:min(perRequest, len(flows))]
			flows = flows[len(some):]
			var request []byte
			for i := range some {
				request = appendTracked(request, &some[i], i == len(some)-1)
			}
			var refused error
			err := s.Exchange(request, func(_ int, a netlink.Answer) { refused = errors.Join(refused, a.Err()) })
			if err := errors.Join(err, refused); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("inject flows: %v", err)
	}
}

func appendTracked(b []byte, f *Tracked, last bool) []byte {
	const (
		messageNew                    = 0       // IPCTNL_MSG_CT_NEW
		original, reply               = 1, 2    // CTA_TUPLE_ORIG, CTA_TUPLE_REPLY
		status, timeout               = 3, 7    // CTA_STATUS, CTA_TIMEOUT
		seenReply, assured, confirmed = 2, 4, 8 // IPS_…
		timeoutSeconds                = 600
	)
	flags, family := uint16(unix.NLM_F_CREATE|unix.NLM_F_EXCL), uint8(unix.NFPROTO_IPV4)
	if last {
		flags |= unix.NLM_F_ACK
	}
	if f.Destination.Addr().Is6() {
		family = unix.NFPROTO_IPV6
	}
	b, mark := netlink.BeginNetfilter(b, unix.NFNL_SUBSYS_CTNETLINK, messageNew, flags, family)
	b = AppendTuple(b, original, f.Protocol, f.Client, f.Destination)
	b = AppendTuple(b, reply, f.Protocol, f.Answerer, f.Source)
	b = netlink.AppendUint32(b, status, confirmed|seenReply|assured)
	b = netlink.AppendUint32(b, timeout, timeoutSeconds)
	return netlink.Finish(b, mark)
}

// AppendTuple adds one direction of a flow, as an attribute of the given kind (CTA_TUPLE_…).
func AppendTuple(b []byte, kind uint16, protocol uint8, from, to netip.AddrPort) []byte {
	const ip, proto, number, sourcePort, destinationPort, nested = 1, 2, 1, 2, 3, unix.NLA_F_NESTED
	source := uint16(1) // CTA_IP_V4_SRC; CTA_IP_V4_DST follows
	if to.Addr().Is6() {
		source = 3
	}
	b, tuple := netlink.Nest(b, kind|nested)
	b, addresses := netlink.Nest(b, ip|nested)
	b = netlink.AppendBytes(b, source, from.Addr().AsSlice())
	b = netlink.AppendBytes(b, source+1, to.Addr().AsSlice())
	b, ports := netlink.Nest(netlink.End(b, addresses), proto|nested)
	b = netlink.AppendUint8(b, number, protocol)
	b = netlink.AppendUint16(b, sourcePort, from.Port())
	b = netlink.AppendUint16(b, destinationPort, to.Port())
	return netlink.End(netlink.End(b, ports), tuple)
}

// Count returns the number of flows in a namespace.
func Count(t testing.TB, n *netns.Namespace) int {
	t.Helper()
	text, err := netnstest.ReadSysctl(n, "net.netfilter.nf_conntrack_count")
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// NewNode creates a namespace that translates packets to 10.96.0.10:53 to an endpoint, 10.0.2.2:5353.
func NewNode(t *testing.T) *netns.Namespace {
	t.Helper()
	node := netnstest.New(t, "node")
	if err := node.AddLinkRoute(netip.MustParsePrefix("10.0.0.0/8"), "lo"); err != nil {
		t.Fatal(err)
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(`table ip t {
		chain out { type nat hook output priority -100; ip daddr 10.96.0.10 udp dport 53 dnat to 10.0.2.2:5353; }
		chain in { type nat hook prerouting priority -100; }
	}`)
	if out, err := netnstest.Output(node, nft); err != nil {
		t.Fatalf("nft: %v: %s (Debian package nftables)", err, out)
	}
	return node
}

// Send sends one datagram from a port to the Service of NewNode.
func Send(node *netns.Namespace, port uint16) error {
	return node.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd) // nothing can be lost
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{10, 96, 0, 10}})
	})
}
