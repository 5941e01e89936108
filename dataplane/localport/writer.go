// Package localport lets node ports answer on 127.0.0.1 and ::1 where the kernel's rules cannot: it
// listens there and forwards to the node's own node port, where the rules of another domain choose
// endpoints and remember clients. A change of endpoints therefore changes nothing here. If node ports
// answer at no other address, it forwards to the endpoints themselves. It owns these listeners and their connections. internal/daemon/backend builds one domain per family from
// it in nftables mode.
//
//	client ──► 127.0.0.1:30080 ──► this process ──► 192.0.2.10:30080 ──► rules ──► endpoint
//	                 listener          (copies)       the node's own address
//
// A listener is an object: [Renderer] says which are wanted, [Writer] opens, retargets and closes
// them, by package listeners. The reasons and the drawbacks are in docs/adr/0007-localhost-node-ports.md.
//
// When a listener changes, traffic behaves as under the kernel's rules:
//
//   - retargeted (the node's address has changed): open TCP connections keep their target; a UDP
//     session moves with the client's next datagram;
//   - removed: new clients are refused immediately; open TCP connections go on until they end, as
//     translated ones do; UDP sessions end, as stale UDP flows are cut;
//   - the process ends, or [Writer.Close]: everything ends.
package localport

import (
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Config tunes a Writer. The defaults hold for each writer, that is for each family.
type Config = relay.Config

// Writer writes the listeners of one family. It implements [dataplane.Writer] and
// [dataplane.Watcher]. Stats and Close may run concurrently with all other methods.
type Writer struct {
	*listeners.Set[targets]
	relay *relay.Relay
	// sockets is where Close leaves the listening ones for a successor; nil for nowhere.
	sockets *relay.Sockets
}

var (
	_ dataplane.Writer  = (*Writer)(nil)
	_ dataplane.Watcher = (*Writer)(nil)
)

// NewWriter returns a writer for one family. Close ends what it has started.
func NewWriter(family service.Family, config Config) *Writer {
	w := &Writer{relay: relay.New(config), sockets: config.Sockets}
	w.Set = listeners.New(w.relay, func(p relay.Place, body string) (targets, error) {
		if p.At.Addr() != loopback[family] {
			return targets{}, fmt.Errorf("listener %s: the address must be %s", p, loopback[family])
		}
		return parseBody(body)
	}, w.open)
	return w
}

// Close ends all listeners, connections and sessions and waits for their end. After it, nothing can
// be opened. Listening sockets go to Config.Sockets, if there are any.
func (w *Writer) Close() error {
	if w.sockets != nil {
		w.relay.Each(func(l *relay.Listener) { _ = l.Share(w.sockets) }) // the successor opens others
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

// Probe returns an error if listening on a family's loopback address fails; a host without IPv6 has
// no ::1. The function inside is that of Config; nil means the process's own namespace.
func Probe(family service.Family, inside func(func() error) error) error {
	if err := relay.Probe(loopback[family], inside); err != nil {
		return fmt.Errorf("node ports on %s: %w", loopback[family], err)
	}
	return nil
}
