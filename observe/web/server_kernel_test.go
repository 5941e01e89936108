// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// inside makes a server listen in a namespace.
func inside(node *netns.Namespace, address string) func() (net.Listener, error) {
	return func() (l net.Listener, err error) {
		err = node.Do(func() (err error) { l, err = Listen(context.Background(), "tcp", address); return err })
		return l, err
	}
}

// TestKernelServer_ListenAddresses: the unspecified address of either family accepts connections of both, and any other
// address only its own; the server listens inside its namespace only.
func TestKernelServer_ListenAddresses(t *testing.T) {
	testenv.NeedsRoot(t)
	const own4, own6 = "192.0.2.10", "2001:db8::10"
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	for _, text := range []string{own4, own6} {
		addr := netip.MustParseAddr(text)
		if err := node.AddAddress("lo", netip.PrefixFrom(addr, addr.BitLen())); err != nil {
			t.Fatal(err)
		}
	}
	everywhere := []string{"127.0.0.1", own4, "::1", own6}
	for address, open := range map[string][]string{
		"0.0.0.0:10256":             everywhere,
		"[::]:10256":                everywhere,
		own4 + ":10256":             {own4},
		"[" + own6 + "]:10256":      {own6},
		"127.0.0.1:10256":           {"127.0.0.1"},
		"[::ffff:192.0.2.10]:10256": {own4},
	} {
		t.Run(address, func(t *testing.T) {
			c := on(address)
			c.Listen, c.ForProbes = inside(node, address), true
			s := newServer(c)
			started(t, s)
			addressOf(t, s)
			for _, host := range everywhere {
				conn, err := node.DialContext(t.Context(), "tcp", net.JoinHostPort(host, "10256"))
				if (err == nil) != slices.Contains(open, host) {
					t.Errorf("%s: %v", host, err)
				}
				if err == nil {
					conn.Close()
				}
			}
			if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", "10256")); err == nil {
				conn.Close()
				t.Error("reached from outside the namespace")
			}
		})
	}
}
