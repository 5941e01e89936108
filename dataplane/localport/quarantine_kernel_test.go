package localport_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/service"
)

// submit hands the fragment of a Service with one node port to an aggregator.
func (w *world) submit(a *aggregator.Aggregator, name string, sequence uint64, port uint16, target netip.AddrPort) {
	f := dataplane.NewFragment(service.Key{Namespace: "ns1", Name: name}, time.Unix(1, 0),
		[]dataplane.Object{*w.listener(service.TCP, port, target)})
	f.Revision = service.Revision{Incarnation: 1, Sequence: sequence}
	a.Submit(f)
}

// TestKernelQuarantineAndRelease runs the domain as the proxy does: among many
// Services, the one whose port is taken is held back alone, and is served when
// the port is free; a listener that dies is back at once.
func TestKernelQuarantineAndRelease(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{})
	backend := w.backend("first", netip.AddrPortFrom(w.own(), nodePort))
	thief := w.backend("thief", w.listen(30085))
	a, err := aggregator.New(aggregator.Config{Domain: "localport/IPv4", Writer: w.writer,
		Pace: aggregator.Pace{Audit: 200 * time.Millisecond}})
	check(t, err)
	const services = 20
	var keys []service.Key
	for n := range uint16(services) {
		name := string(rune('a' + n))
		keys = append(keys, service.Key{Namespace: "ns1", Name: name})
		w.submit(a, name, 1, nodePort+n, backend.Addr())
	}
	a.Prime(keys)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx) }()
	go func() { ended <- w.writer.Watch(ctx, a.AuditSoon) }()

	w.await("the culprit is found", func() bool { return len(a.Status().Quarantined) > 0 && a.Status().Ledger.Pending == 0 })
	held := a.Status().Quarantined
	if len(held) != 1 || held[0].Key.String() != "ns1/f" || !strings.Contains(held[0].Reason, "30085/tcp") {
		t.Errorf("in quarantine: %+v", held)
	}
	if n := w.writer.Stats().Listeners; n != services-1 {
		t.Errorf("%d listeners, want %d", n, services-1)
	}
	for _, port := range []uint16{nodePort, nodePort + services - 1} {
		w.expectAnswer("tcp", port, "first")
	}
	w.expectAnswer("tcp", 30085, "thief")

	check(t, thief.Close())
	w.await("the culprit is freed", func() bool { return len(a.Status().Quarantined) == 0 })
	w.expectAnswer("tcp", 30085, "first")

	kill(w, w.listen(30085))
	w.await("the dead listener is noticed", func() bool { return len(w.takeFailures()) == 1 })
	w.await("the dead listener is back", func() bool { return w.writer.Stats().Listeners == services })
	w.expectAnswer("tcp", 30085, "first")
	cancel()
	for range 2 {
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	check(t, backend.Close())
}
