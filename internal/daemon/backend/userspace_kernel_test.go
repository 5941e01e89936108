// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelUserspace_ServiceAddressesNoARP: a node in userspace mode does not answer ARP for addresses that a load
// balancer announces, but does for its own addresses. A clean-up restores the sysctls.
func TestKernelUserspace_ServiceAddressesNoARP(t *testing.T) {
	node, neighbour := netnstest.New(t, "node"), netnstest.New(t, "neighbour")
	ok(t, netns.Link(node, neighbour, netns.LinkSpec{
		NameA: "eth0", NameB: "eth0",
		AddrsA: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}, AddrsB: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/24")},
	}))
	core, lines := observer.New(zap.InfoLevel)
	files := sysctl.Files{Record: sysctl.NewRecord(t.TempDir(), func(err error) { t.Errorf("warned: %v", err) })}
	o := UserspaceOptions{Sysctls: files, Log: zap.New(core)}
	answers := func(addr string) bool {
		t.Helper()
		run(t, neighbour, "ip", "neigh", "flush", "dev", "eth0")
		// The datagram waits for the answer, or is rejected.
		if c, err := neighbour.DialContext(t.Context(), "udp", addr+":9"); err == nil {
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
		}
		for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			switch state := run(t, neighbour, "ip", "neigh", "show", addr); {
			case strings.Contains(state, "lladdr"):
				return true
			case strings.Contains(state, "FAILED"):
				return false
			}
		}
		t.Fatalf("no decision about %s", addr)
		return false
	}
	const vip, own = "192.0.2.100", "192.0.2.1"
	run(t, node, "ip", "route", "add", "local", vip, "dev", "lo", "table", "local", "proto", "219", "metric", "219")
	if !answers(vip) {
		t.Fatal("a local address does not answer ARP requests: the test proves nothing")
	}
	for range 2 { // the second time all is as it should be
		ok(t, node.Do(func() error { return SetUserspace(o) }))
	}
	if n := lines.FilterMessage("sysctl value changed").Len(); n != 2 {
		t.Errorf("%d changes are logged, want 2: %v", n, lines.All())
	}
	if answers(vip) || !answers(own) {
		t.Errorf("answers: for the load balancer's address %t, for the node's %t", answers(vip), answers(own))
	}
	ok(t, node.Do(func() error { _, err := files.Restore(); return err }))
	for name, want := range map[string]string{"arp_ignore": "0", "arp_announce": "0"} {
		if got, err := netnstest.ReadSysctl(node, "net.ipv4.conf.all."+name); err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%s is %q after the clean-up, want %s; %v", name, got, want, err)
		}
	}
}

// TestKernelUserspace_HostPortsClosed: at a Service's address, clients cannot reach a program that listens on all
// addresses of the host. The next mode, or a clean-up, removes these rules.
func TestKernelUserspace_HostPortsClosed(t *testing.T) {
	node := netnstest.New(t, "node")
	l, err := node.Listen("tcp", "0.0.0.0:10250")
	ok(t, err)
	t.Cleanup(func() { _ = l.Close() })
	core, lines := observer.New(zap.InfoLevel)
	cluster := netip.MustParseAddr("10.0.0.41")
	view := &service.View{Key: service.Key{Namespace: "ns1", Name: "web"}}
	view.Ports[service.IPv4] = []service.PortView{{Name: "http", Protocol: service.TCP, Port: 80, ClusterIP: cluster}}
	forwarders := &Forwarders{}
	t.Cleanup(forwarders.Close)
	ok(t, node.Do(func() error {
		domains, err := Userspace(forwarders, UserspaceOptions{Log: zap.New(core), Sysctls: sysctl.Files{}})
		if err != nil {
			return err
		}
		var changes []dataplane.Change
		for _, o := range domains[0].Renderer.Service(context.Background(), view, &service.NodeFacts{}) {
			changes = append(changes, dataplane.Change{ID: o.ID, After: &o, Owner: view.Key})
		}
		if r := domains[0].Writer.Write(t.Context(), &dataplane.Batch{Changes: changes}); r.Outcome != dataplane.Landed {
			t.Errorf("write: %v", r)
		}
		for _, d := range domains {
			err = errors.Join(err, d.Writer.Close())
		}
		return err
	}))
	if lines.FilterMessageSnippet("NetworkPolicy").FilterLevelExact(zap.WarnLevel).Len() != 1 {
		t.Errorf("one warning about NetworkPolicy is missing: %v", lines.All())
	}
	ask := func(addr string) error {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		c, err := node.DialContext(ctx, "tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	ok(t, node.AddAddress("lo", netip.MustParsePrefix("192.0.2.1/32")))
	if err := ask("192.0.2.1:10250"); err != nil {
		t.Errorf("at the node's address: %v", err)
	}
	if err := ask("10.0.0.41:10250"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("at the Service's address: %v, want it rejected", err)
	}
	var told []string
	for _, dry := range []bool{true, false, false} {
		ok(t, node.Do(func() error {
			left, err := (&Sweep{Dry: dry, WithoutTables: true, Families: service.Families[:]}).Run(t.Context())
			for _, l := range left {
				if strings.HasPrefix(l.Of, "userspace/") {
					told = append(told, l.What)
				}
			}
			return err
		}))
	}
	const there = "1 local addresses, guard: true"
	if want := []string{there, "", there, "", "", ""}; !slices.Equal(told, want) {
		t.Errorf("the clean-ups found %q, want %q", told, want)
	}
	if left := run(t, node, "nft", "list", "ruleset") + run(t, node, "ip", "route", "show", "table", "local", "proto", "219"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestKernelReleaseAddresses_Server: the API server's address that an earlier process made local is routed out of the
// node again. Other addresses, and routes of other programs, remain.
func TestKernelReleaseAddresses_Server(t *testing.T) {
	node := netnstest.New(t, "node")
	for _, addr := range []string{"203.0.113.6", "203.0.113.7", "2001:db8::6"} {
		run(t, node, "ip", "route", "add", "local", addr, "dev", "lo", "table", "local", "proto", "219", "metric", "219")
	}
	run(t, node, "ip", "route", "add", "local", "203.0.113.8", "dev", "lo", "table", "local")
	ok(t, node.Do(func() error {
		ReleaseAddresses(t.Context(), []netip.Addr{
			netip.MustParseAddr("203.0.113.6"), netip.MustParseAddr("2001:db8::6"), netip.MustParseAddr("203.0.113.8"),
		})
		return nil
	}))
	left := run(t, node, "ip", "route", "show", "table", "local") + run(t, node, "ip", "-6", "route", "show", "table", "local")
	for addr, want := range map[string]bool{"203.0.113.6": false, "203.0.113.7": true, "203.0.113.8": true, "2001:db8::6": false} {
		if strings.Contains(left, addr) != want {
			t.Errorf("%s is local: %t, want %t:\n%s", addr, !want, want, left)
		}
	}
}

// TestUserspace_WithoutGuard: on a kernel without nf_tables, the mode does not start and the error contains a remedy,
// unless the configuration accepts open ports of the host. Any other error is final.
func TestUserspace_WithoutGuard(t *testing.T) {
	lacks, other := &nftkernel.MissingError{Family: service.IPv4, Err: syscall.EPROTONOSUPPORT}, syscall.EPERM
	for name, c := range map[string]struct {
		expose         bool
		err            error
		fails, advises bool
	}{
		"rejected": {false, lacks, true, true}, "accepted": {true, lacks, false, false},
		"another error": {false, other, true, false}, "another error, although accepted": {true, other, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			core, lines := observer.New(zap.WarnLevel)
			err := (&UserspaceOptions{ExposeHostPorts: c.expose, Log: zap.New(core)}).withoutGuard(c.err)
			advice, advises := errors.AsType[*AdvisedError](err)
			if (err != nil) != c.fails || advises != c.advises {
				t.Errorf("got %v", err)
			}
			if advises && (!strings.Contains(advice.Do, "userspace.exposeHostPorts: true") || !errors.Is(err, syscall.EPROTONOSUPPORT)) {
				t.Errorf("the advice is %q", advice.Do)
			}
			if warned := lines.Len() > 0; warned == c.fails {
				t.Errorf("warned: %v", lines.All())
			}
		})
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, in *netns.Namespace, program string, words ...string) string {
	t.Helper()
	out, err := netnstest.Output(in, exec.Command(program, words...))
	ok(t, err)
	return string(out)
}
