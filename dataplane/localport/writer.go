// SPDX-License-Identifier: Apache-2.0

// Package localport serves node ports on 127.0.0.1 and ::1, where the kernel's rules cannot: it listens there and
// forwards to the node port at the node's address, where the rules of another domain choose endpoints and
// remember clients. A change of endpoints therefore changes nothing here. If node ports answer at no other address,
// it forwards to the endpoints. It owns these listeners and their connections. In nftables mode,
// internal/daemon/backend builds one domain per family from it.
//
//	client ──► 127.0.0.1:30080 ──► this process ──► 192.0.2.10:30080 ──► rules ──► endpoint
//	                 listener          (copies)       the node's own address
//
// A listener is an object: [Renderer] renders the desired ones; [Writer], with package listeners, opens, retargets and
// closes them. docs/adr/0007-localhost-node-ports.md describes the reasons and the drawbacks.
//
// When a listener changes, traffic behaves as under the kernel's rules:
//
//   - retargeted (the node's address changed): open TCP connections keep their target; a UDP session
//     moves to the new target with the client's next datagram;
//   - removed: the host refuses new clients immediately; open TCP connections continue until they end,
//     like connections that the kernel translates; UDP sessions end, as Sluice deletes stale UDP flows;
//   - the process ends, or [Writer.Close]: everything ends.
package localport

import (
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Config tunes a Writer. Its limits apply to each writer, that is, to each family separately.
type Config = relay.Config

// Writer writes the listeners of one family. Stats and Close may run concurrently with all other methods.
type Writer struct {
	*listeners.Set[targets]
	relay *relay.Relay
	// sockets receives copies of the listening sockets from Close, for the next writer; may be nil.
	sockets *relay.Sockets
}

// Contract returns the functions that the core calls.
func (w *Writer) Contract() dataplane.Writer {
	return dataplane.Writer{Write: w.Write, Read: w.Read, Watch: w.Watch, Close: w.Close}
}

// NewWriter returns a writer for one family, which runs until Close.
func NewWriter(family service.Family, config Config) *Writer {
	w := &Writer{relay: relay.New(config), sockets: config.Sockets}
	w.Set = listeners.New(w.relay, func(p relay.Place, body string) (targets, error) {
		if p.At.Addr() != service.Loopback[family] {
			return targets{}, fmt.Errorf("listener %s: the address must be %s", p, service.Loopback[family])
		}
		return parseBody(body)
	}, w.open)
	return w
}

// Close ends all listeners, connections and sessions and waits for their end. After it, nothing can
// be opened. If Config.Sockets is set, Close puts copies of the listening sockets there.
func (w *Writer) Close() error {
	if w.sockets != nil {
		w.relay.Each(func(l *relay.Listener) { _ = l.Share(w.sockets) }) // if it fails, the next writer opens one
	}
	w.relay.Close()
	return nil
}

// Stats returns the writer's numbers.
func (w *Writer) Stats() *relay.Stats { return w.relay.Stats() }

// listener forwards to the targets of a balancer.
type listener struct {
	*relay.Listener
	balancer *balancer
}

func (w *Writer) open(p relay.Place, to targets) (listeners.Listener[targets], error) {
	b := newBalancer(to, nil)
	l, err := w.relay.Open(p, relay.Options{Balancer: b})
	return &listener{l, b}, err
}

// Change replaces the targets. Open connections keep the previous ones.
func (l *listener) Change(to targets) error {
	l.balancer = newBalancer(to, l.balancer)
	l.Use(l.balancer)
	return nil
}

// Retire closes the socket. TCP connections continue, UDP sessions end.
func (l *listener) Retire() { l.Close() }

// Probe returns an error if listening on a family's loopback address fails, for example because a host without
// IPv6 has no ::1. The function inside is as in Config; nil means the network namespace of the process.
func Probe(family service.Family, inside func(func() error) error) error {
	if err := relay.Probe(service.Loopback[family], inside); err != nil {
		return fmt.Errorf("node ports on %s: %w", service.Loopback[family], err)
	}
	return nil
}
