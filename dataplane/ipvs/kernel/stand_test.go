// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// stand is a writer on a kernel, the fake one or Linux, and what goes with it.
type stand struct {
	*testing.T
	rendertest.World
	w *Writer
	// kernel and device are for others than the writer: to look, and to interfere.
	kernel *kernelSockets
	device dummyDevice
	// another opens a further writer on the same kernel.
	another func(Config) *Writer
	// known is what the last read or write has left, as a ledger would have it.
	known map[dataplane.ID]*dataplane.Object
}

// setPrefixes begin the names of sets, those of kube-proxy as well.
var setPrefixes = service.PerFamily[string]{"KUBE-", "KUBE-6-"}

// newFakeStand is one on the fake kernel.
func newFakeStand(t *testing.T, family service.Family, config Config) (*stand, *fakeKernel) {
	t.Helper()
	k := newFakeKernel()
	s := &stand{T: t, World: rendertest.WorldOf(family), device: fakeDevice{k}}
	s.another = func(config Config) *Writer {
		config.Rules = fakeRules{k}.contract()
		w := newWriter(family, config, fakeDevice{k}, k.open)
		if err := w.connect(); err != nil {
			t.Fatal(err)
		}
		return w
	}
	s.begin(config)
	s.kernel = k.sockets()
	return s, k
}

func (s *stand) begin(config Config) {
	s.Helper()
	w := s.another(config)
	s.w, s.known = w, map[dataplane.ID]*dataplane.Object{}
	s.Cleanup(func() {
		if err := w.Close(); err != nil {
			s.Error(err)
		}
	})
}

// owned is objects with the Service that wants them.
type owned struct {
	owner   service.Key
	objects []dataplane.Object
}

// scaffold is what the node wants.
func (s *stand) scaffold() owned {
	return owned{service.Node, render.NewRenderer(s.Family, render.Options{MasqueradeBit: 14}).Node(s.Facts())}
}

// serviceOf is what a Service with some ports wants.
func (s *stand) serviceOf(name string, ports ...service.PortView) owned {
	for i, p := range ports {
		// The world's endpoints are not sorted by their text, as those of views are.
		ports[i].Cluster = slices.SortedFunc(slices.Values(p.Cluster), service.Endpoint.Compare)
	}
	view := s.View(ports...)
	view.Key.Name = name
	renderer := render.NewRenderer(s.Family, render.Options{MasqueradeBit: 14})
	return owned{view.Key, renderer.Service(context.Background(), view, s.Facts())}
}

// clusterIP is a port of its own for each number. The last byte of the address differs
// first, as from the allocator of an API server: Linux finds virtual servers by it.
func (s *stand) clusterIP(number, endpoints int) service.PortView {
	p := s.Port()
	b := p.ClusterIP.As16()
	b[14], b[15] = byte(number>>8), byte(number)
	p.ClusterIP = netip.AddrFrom16(b)
	if s.Family == service.IPv4 {
		p.ClusterIP = p.ClusterIP.Unmap()
	}
	p.Cluster = s.Endpoints(endpoints)
	return p
}

// changes returns what leads from what is known to what is wanted.
func (s *stand) changes(wanted ...owned) []dataplane.Change {
	left := maps.Clone(s.known)
	var changes []dataplane.Change
	seen := map[dataplane.ID]bool{}
	for _, w := range wanted {
		for i := range w.objects {
			o := &w.objects[i]
			if seen[o.ID] {
				continue
			}
			seen[o.ID] = true
			delete(left, o.ID)
			if before := s.known[o.ID]; !dataplane.Same(before, o) {
				changes = append(changes, dataplane.Change{ID: o.ID, Before: before, After: o, Owner: w.owner})
			}
		}
	}
	for id, before := range left {
		changes = append(changes, dataplane.Change{ID: id, Before: before})
	}
	slices.SortFunc(changes, func(a, b dataplane.Change) int { return a.ID.Compare(b.ID) })
	return changes
}

// write writes changes, and takes note of what the receipt says.
func (s *stand) write(changes []dataplane.Change) dataplane.Receipt {
	s.Helper()
	receipt := s.w.Write(s.Context(), &dataplane.Batch{Number: 1, Changes: changes})
	for _, c := range changes {
		now := c.After
		if receipt.Outcome != dataplane.Landed {
			now = receipt.Certain[c.ID]
		}
		if delete(s.known, c.ID); now != nil {
			s.known[c.ID] = now
		}
	}
	if (receipt.Outcome == dataplane.Landed) != (receipt.Err == nil) {
		s.Errorf("outcome %v with error %v", receipt.Outcome, receipt.Err)
	}
	return receipt
}

// want brings the kernel to what is wanted, and expects it to be just so.
func (s *stand) want(wanted ...owned) dataplane.Receipt {
	s.Helper()
	receipt := s.write(s.changes(wanted...))
	// Linux frees rules, and the sets that they ask, a moment after they have gone.
	for try := 0; receipt.Outcome == dataplane.Busy && try < 100; try++ {
		time.Sleep(10 * time.Millisecond)
		receipt = s.write(s.changes(wanted...))
	}
	if receipt.Outcome != dataplane.Landed {
		s.Fatal(receipt)
	}
	s.expect(wanted...)
	return receipt
}

// expect reads the kernel, with this writer and as after a restart, and expects
// nothing to be left to write.
func (s *stand) expect(wanted ...owned) {
	s.Helper()
	s.read()
	for _, c := range s.changes(wanted...) {
		s.Errorf("%v differs: before %+v, after %+v", c.ID, c.Before, c.After)
	}
}

// read takes what is in the kernel for known.
func (s *stand) read() {
	s.Helper()
	objects, err := s.w.Read(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.known = map[dataplane.ID]*dataplane.Object{}
	for i := range objects {
		if s.known[objects[i].ID] != nil {
			s.Errorf("%v is there twice", objects[i].ID)
		}
		s.known[objects[i].ID] = &objects[i]
	}
}

// interfere changes virtual servers behind the writer's back.
func (s *stand) interfere(requests ...wire.Request) {
	s.Helper()
	if err := errors.Join(s.kernel.changes.Do(s.Context(), requests)...); err != nil {
		s.Fatal(err)
	}
}

// server returns the virtual server of a port's ClusterIP.
func (s *stand) server(p service.PortView) (render.Server, dataplane.ID) {
	s.Helper()
	for _, o := range s.serviceOf("any", p).objects {
		if o.ID.Container != render.ContainerServer {
			continue
		}
		server, err := render.ParseServer(&o)
		if err != nil {
			s.Fatal(err)
		}
		return server, o.ID
	}
	s.Fatal("a port without a server")
	return render.Server{}, dataplane.ID{}
}
