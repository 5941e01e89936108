// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// patience bounds every wait.
var patience = testenv.Patience

// world is a node with a writer, and a client on another host whose default route leads to it.
type world struct {
	testing.TB
	family       service.Family
	node, client *netns.Namespace
	forwarder    *userspace.Forwarder
	writer       *userspace.Writer
	// guarded says that writers have a guard.
	guarded  bool
	registry *userspace.Registry
	owner    service.Key
}

// addresses of a family. The endpoints are the node's, on its loopback interface.
var addresses = service.PerFamily[struct {
	node, client, cluster, other netip.Addr
	endpoints                    [3]netip.Addr
}]{
	{ip("198.51.100.1"), ip("198.51.100.2"), ip("10.0.0.41"), ip("10.0.0.42"), [3]netip.Addr{ip("10.244.1.1"), ip("10.244.1.2"), ip("10.244.1.3")}},
	{ip("2001:db8:1::1"), ip("2001:db8:1::2"), ip("fd00::41"), ip("fd00::42"), [3]netip.Addr{ip("fd00:10::1"), ip("fd00:10::2"), ip("fd00:10::3")}},
}

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eachFamily runs a test of logic that is the same for both families, in make test for IPv4.
func eachFamily(t *testing.T, config userspace.Config, test func(*world)) {
	inFamilies(t, testenv.Variants(service.IPv4, service.IPv6), config, test)
}

// bothFamilies runs a test of what depends on the family.
func bothFamilies(t *testing.T, config userspace.Config, test func(*world)) {
	inFamilies(t, service.Families[:], config, test)
}

func inFamilies(t *testing.T, families []service.Family, config userspace.Config, test func(*world)) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) { test(newWorld(t, family, config)) })
	}
}

func newWorld(t testing.TB, family service.Family, config userspace.Config) *world {
	t.Helper()
	a := addresses[family]
	bits := 24
	if family == service.IPv6 {
		bits = 64
	}
	w := &world{TB: t, family: family, node: netnstest.New(t, "node"), client: netnstest.New(t, "client"),
		owner: service.Key{Namespace: "ns1", Name: "web"}}
	check(t, netns.Link(w.node, w.client, netns.LinkSpec{
		NameA: "eth0", NameB: "eth0", AddrsA: []netip.Prefix{netip.PrefixFrom(a.node, bits)}, AddrsB: []netip.Prefix{netip.PrefixFrom(a.client, bits)},
	}))
	check(t, w.client.AddRoute(netns.Everything(a.node), a.node))
	for _, e := range a.endpoints {
		check(t, w.node.AddAddress("lo", netns.Single(e)))
	}
	w.registry = config.Registry
	if w.registry == nil {
		w.registry = userspace.NewRegistry(userspace.Bounds{})
		config.Registry = w.registry
	}
	config.Relay.Inside = w.node.Do
	config.Relay.Report = func(f relay.Failure) { t.Errorf("reported %+v", f) }
	w.forwarder = userspace.NewForwarder(userspace.Addresses, family, config)
	w.writer = w.newWriter()
	t.Cleanup(func() {
		w.forwarder.Close()
		check(t, w.writer.Close())
		w.checkNothingIsLeft()
	})
	return w
}

func (w *world) newWriter() *userspace.Writer {
	var guard userspace.Guard
	if w.guarded {
		table, err := nftkernel.NewGuard(w.family, w.node.Do)
		check(w, err)
		guard = table
	}
	writer, err := userspace.NewWriter(w.forwarder, guard, w.node.Do)
	check(w, err)
	return writer
}

// checkNothingIsLeft fails the test if a goroutine or a count outlives Close, or a table of
// netfilter was made.
func (w *world) checkNothingIsLeft() {
	w.Helper()
	s := w.forwarder.Stats()
	if s.Listeners.Load() != 0 || s.Connections.Load() != 0 || s.Sessions.Load() != 0 {
		w.Errorf("after Close: %+v", s)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "/dataplane/relay.(*") || strings.Contains(stack, "/dataplane/userspace.(*") {
			w.Errorf("after Close there is\n%s", stack)
		}
	}
	if out := w.run("nft", "list", "ruleset"); out != "" {
		w.Errorf("there are tables of netfilter:\n%s", out)
	}
}

// run runs a program on the node.
func (w *world) run(program string, words ...string) string {
	w.Helper()
	out, err := netnstest.Output(w.node, exec.Command(program, words...))
	check(w, err)
	return string(out)
}

func (w *world) cluster(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(addresses[w.family].cluster, port)
}

// endpoint is the address of an endpoint.
func (w *world) endpoint(i int) netip.AddrPort {
	return netip.AddrPortFrom(addresses[w.family].endpoints[i], 8080)
}

// backend answers at an endpoint over TCP and UDP, with the name a, b or c.
func (w *world) backend(i int) *netnstest.Backend {
	w.Helper()
	b, err := netnstest.StartBackend(w.node, string("abc"[i]), w.endpoint(i))
	check(w, err)
	w.Cleanup(func() { _ = b.Close() }) // a test may have closed it
	return b
}

func addressOf(addr netip.Addr) *dataplane.Object {
	return &dataplane.Object{ID: dataplane.ID{Container: "address", Name: addr.String()}, Kind: dataplane.Element}
}

func listenerOf(protocol service.Protocol, at netip.AddrPort, lines ...string) *dataplane.Object {
	body := ""
	for _, line := range lines {
		body += line + "\n"
	}
	return &dataplane.Object{ID: dataplane.ID{Container: "listener", Name: protocol.String() + "/" + at.String()},
		Kind: dataplane.Element, Body: body}
}

// to returns the lines of a body for endpoints.
func (w *world) to(endpoints ...int) (lines []string) {
	for _, i := range endpoints {
		lines = append(lines, "to "+w.endpoint(i).String())
	}
	return lines
}

func (w *world) want(o *dataplane.Object) dataplane.Change {
	return dataplane.Change{ID: o.ID, After: o, Owner: w.owner}
}

func (w *world) gone(o *dataplane.Object) dataplane.Change {
	return dataplane.Change{ID: o.ID, Before: o, Owner: service.Node}
}

// attempt writes and checks that the receipt is true.
func (w *world) attempt(changes ...dataplane.Change) dataplane.Receipt {
	w.Helper()
	return writertest.Attempt(w, w.writer.Contract(), changes...)
}

// write writes a batch that must land.
func (w *world) write(changes ...dataplane.Change) {
	w.Helper()
	if receipt := w.attempt(changes...); receipt.Outcome != dataplane.Landed || receipt.Err != nil {
		w.Fatalf("write: %v", receipt)
	}
}

func (w *world) read() map[dataplane.ID]*dataplane.Object {
	w.Helper()
	objects, err := w.writer.Read(w.Context())
	check(w, err)
	if !slices.IsSortedFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) }) {
		w.Errorf("not sorted: %v", objects)
	}
	there := map[dataplane.ID]*dataplane.Object{}
	for _, o := range objects {
		there[o.ID] = &o
	}
	return there
}

// names asks until the deadline and returns who has answered how often.
func (w *world) names(from *netns.Namespace, network string, at netip.AddrPort, times int) map[string]int {
	w.Helper()
	names := map[string]int{}
	for range times {
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		answer, err := netnstest.Ask(ctx, from, network, at)
		cancel()
		check(w, err)
		names[answer.Backend]++
	}
	return names
}

// expectRefused wants clients refused at once.
func (w *world) expectRefused(network string, at netip.AddrPort) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for _, from := range []*netns.Namespace{w.client, w.node} {
		if _, err := netnstest.Ask(ctx, from, network, at); !errors.Is(err, syscall.ECONNREFUSED) {
			w.Errorf("%s to %s: %v, want it refused", network, at, err)
		}
	}
}

// expectSilence wants no answer to a client.
func (w *world) expectSilence(network string, at netip.AddrPort) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := netnstest.Ask(ctx, w.client, network, at)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		w.Errorf("%s to %s: %v, want silence", network, at, err)
	}
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	testenv.Eventually(w, what, holds)
}

// dial connects to the Service.
func (w *world) dial(at netip.AddrPort) *net.TCPConn {
	w.Helper()
	conn, err := w.client.DialContext(w.Context(), "tcp", at.String())
	check(w, err)
	w.Cleanup(func() { _ = conn.Close() }) // closed by the test, as a rule
	check(w, conn.SetDeadline(time.Now().Add(patience)))
	return conn.(*net.TCPConn)
}

// expectReset wants a connection reset at once: while it is made, or when it is read from.
func (w *world) expectReset(at netip.AddrPort) {
	w.Helper()
	conn, err := w.client.DialContext(w.Context(), "tcp", at.String())
	if err == nil {
		check(w, conn.SetDeadline(time.Now().Add(patience)))
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close() // it was reset
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		w.Errorf("%s: %v, want a reset", at, err)
	}
}
