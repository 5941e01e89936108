// SPDX-License-Identifier: Apache-2.0

package localport_test

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// world is a network namespace with a writer. Addresses on its loopback interface serve as the
// node's own.
type world struct {
	testing.TB
	family service.Family
	node   *netns.Namespace
	writer *localport.Writer
	// owner is the owner of the changes.
	owner service.Key

	mu       sync.Mutex
	failures []relay.Failure
}

// addresses are the loopback address, and two of the node's own.
var addresses = service.PerFamily[struct{ loopback, own, second netip.Addr }]{
	service.IPv4: {addr("127.0.0.1"), addr("192.0.2.10"), addr("198.51.100.10")},
	service.IPv6: {addr("::1"), addr("2001:db8::10"), addr("2001:db8:1::10")},
}

const nodePort = 30080

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// eachFamily runs a test of logic that is the same for both families, in make test for IPv4.
func eachFamily(t *testing.T, config localport.Config, test func(*world)) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) { test(newWorld(t, family, config)) })
	}
}

func newWorld(t testing.TB, family service.Family, config localport.Config) *world {
	t.Helper()
	node := netnstest.New(t, "node")
	w := &world{TB: t, family: family, node: node, owner: service.Key{Namespace: "ns1", Name: "web"}}
	for _, own := range []netip.Addr{w.own(), w.second()} {
		check(t, node.AddAddress("lo", netip.PrefixFrom(own, own.BitLen())))
	}
	config.Inside = node.Do
	config.Report = func(f relay.Failure) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failures = append(w.failures, f)
	}
	w.writer = localport.NewWriter(family, config)
	t.Cleanup(func() {
		check(t, w.writer.Close())
		w.checkNothingIsLeft()
	})
	return w
}

func (w *world) own() netip.Addr    { return addresses[w.family].own }
func (w *world) second() netip.Addr { return addresses[w.family].second }

// listen returns the address of a node port's listener.
func (w *world) listen(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(addresses[w.family].loopback, port)
}

// checkNothingIsLeft fails the test if a goroutine or a count outlives Close, or if there is a
// report that the test did not take.
func (w *world) checkNothingIsLeft() {
	w.Helper()
	s := w.writer.Stats()
	if s.Listeners.Load() != 0 || s.Connections.Load() != 0 || s.Sessions.Load() != 0 {
		w.Errorf("after Close: %+v", s)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "/dataplane/relay.(*") && !strings.Contains(stack, "localport_test.") {
			w.Errorf("after Close there is\n%s", stack)
		}
	}
	if len(w.failures) > 0 {
		w.Errorf("reported: %+v", w.failures)
	}
}

// takeFailures returns the reports since the last call.
func (w *world) takeFailures() []relay.Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.failures
	w.failures = nil
	return taken
}

// listener is the object of a listener that forwards to a target.
func (w *world) listener(protocol service.Protocol, port uint16, target netip.AddrPort) *dataplane.Object {
	return &dataplane.Object{
		ID:   dataplane.ID{Container: "listener", Name: protocol.String() + "/" + w.listen(port).String()},
		Kind: dataplane.Element, Body: "to " + target.String(),
	}
}

// want returns the change that adds an object.
func (w *world) want(o *dataplane.Object) dataplane.Change {
	return dataplane.Change{ID: o.ID, After: o, Owner: w.owner}
}

// gone returns the change that removes an object.
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

func (w *world) read() []dataplane.Object {
	w.Helper()
	objects, err := w.writer.Read(w.Context())
	check(w, err)
	return objects
}

// dial connects to a node port on the loopback address.
func (w *world) dial(port uint16) *net.TCPConn {
	w.Helper()
	conn, err := w.node.DialContext(w.Context(), "tcp", w.listen(port).String())
	check(w, err)
	w.Cleanup(func() { _ = conn.Close() }) // closed by the test, as a rule
	check(w, conn.SetDeadline(time.Now().Add(patience)))
	return conn.(*net.TCPConn)
}

// serve answers each connection to an address of the node with talk.
func (w *world) serve(at netip.AddrPort, talk func(*net.TCPConn)) {
	w.Helper()
	listener, err := w.node.Listen("tcp", at.String())
	check(w, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close() // the client has seen what it had to see
				talk(conn.(*net.TCPConn))
			})
		}
	})
	w.Cleanup(func() {
		check(w, listener.Close())
		running.Wait()
	})
}

// backend answers at an address of the node, over TCP and UDP, with its name.
func (w *world) backend(name string, at netip.AddrPort) *netnstest.Backend {
	w.Helper()
	b, err := netnstest.StartBackend(w.node, name, at)
	check(w, err)
	return b
}

// expectAnswer asks a node port on the loopback address.
func (w *world) expectAnswer(network string, port uint16, backend string) {
	w.Helper()
	answer, err := netnstest.Ask(w.Context(), w.node, network, w.listen(port))
	if err != nil || answer.Backend != backend {
		w.Errorf("%s to %s: answered by %q, %v; want %q", network, w.listen(port), answer.Backend, err, backend)
	}
}

// expectRefused connects to a node port on the loopback address without a listener.
func (w *world) expectRefused(network string, port uint16) {
	w.Helper()
	if answer, err := netnstest.Ask(w.Context(), w.node, network, w.listen(port)); err == nil || !strings.Contains(err.Error(), "refused") {
		w.Errorf("%s to %s: %+v, %v; want a refusal", network, w.listen(port), answer, err)
	}
}

// await waits until a condition holds.
func (w *world) await(what string, is func() bool) {
	w.Helper()
	testenv.Eventually(w, what, is)
}

// patience bounds every wait.
var patience = testenv.Patience

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readAll reads to the end of a stream.
func (w *world) readAll(conn *net.TCPConn) string {
	w.Helper()
	text, err := io.ReadAll(conn)
	check(w, err)
	return string(text)
}
