//go:build ipvs

package ipvs

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// listings counts what lists more than it is asked for by name.
type listings struct{ servers, sets, addresses int }

// count lets a writer's listings be counted from now on.
func (l *listings) count(w *Writer) {
	w.kernel = &kernelSockets{countedServers{w.kernel.servers, l}, w.kernel.changes, countedSets{w.kernel.sets, l}}
	w.device = countedDevice{w.device, l}
}

type countedServers struct {
	serverReader
	*listings
}

func (c countedServers) List(ctx context.Context, wanted func(kernel.Service) bool) ([]kernel.Server, error) {
	c.servers++
	return c.serverReader.List(ctx, wanted)
}

type countedSets struct {
	setSocket
	*listings
}

func (c countedSets) List(ctx context.Context, wanted func(name string) bool) ([]kernel.Set, error) {
	c.sets++
	return c.setSocket.List(ctx, wanted)
}

type countedDevice struct {
	dummyDevice
	*listings
}

func (c countedDevice) Addresses(family int) (own, others []netip.Addr, err error) {
	c.addresses++
	return c.dummyDevice.Addresses(family)
}

// many is the node with so many Services of so many endpoints each.
func (s *stand) many(count, endpoints int) []owned {
	all := []owned{s.scaffold()}
	for i := range count {
		all = append(all, s.serviceOf("s", s.clusterIP(i+1, endpoints)))
		all[i+1].owner.Name += all[i+1].objects[0].ID.Name
	}
	return all
}

// TestKernelWorkOfAChange counts what a cold start takes with 100 Services and with
// 10,000, and what one endpoint that leaves takes beside them. What is there is listed
// once, before the first write.
func TestKernelWorkOfAChange(t *testing.T) {
	const endpoints = 10
	// A Service is a virtual server, its real ones, an address and at most two entries.
	const perService, scaffold = 1 + endpoints + 1 + 2, 200
	// A send holds 256 requests at least.
	const perCall, fewCalls = 256, 40
	var changes []dataplane.Written
	for _, services := range []int{100, 10_000} {
		s, _ := newKernelStand(t, service.IPv4, Config{})
		var listed listings
		s.read()
		listed.count(s.w)
		all := s.many(services, endpoints)
		receipt := s.write(s.changes(all...))
		if receipt.Outcome != dataplane.Landed {
			t.Fatal(receipt)
		}
		t.Logf("%d Services: cold start in %v, %+v", services, receipt.Took, receipt.Written)
		if lines := receipt.Written.Lines; lines < services*(1+endpoints+1) || lines > services*perService+scaffold {
			t.Errorf("%d Services take %d lines, want %d to %d", services, lines, services*(1+endpoints+1), services*perService+scaffold)
		}
		if calls := receipt.Written.Calls; calls > receipt.Written.Lines/perCall+fewCalls {
			t.Errorf("%d Services take %d calls for %d lines", services, calls, receipt.Written.Lines)
		}
		all[1] = owned{all[1].owner, s.serviceOf("s", s.clusterIP(1, endpoints-1)).objects}
		receipt = s.write(s.changes(all...))
		changes = append(changes, receipt.Written)
		t.Logf("%d Services: one endpoint less: the write took %v, %+v", services, receipt.Took, receipt.Written)
		if listed != (listings{}) {
			t.Errorf("listed again after the first time: %+v", listed)
		}
		start := time.Now()
		s.expect(all...)
		t.Logf("%d Services: read and compared in %v", services, time.Since(start))
		if listed != (listings{1, 1, 1}) {
			t.Errorf("a read is not counted: %+v", listed)
		}
	}
	if changes[0] != changes[1] || changes[0].Calls != 1 || changes[0].Lines != 1 {
		t.Errorf("a change takes %+v beside 100 Services, and %+v beside 10,000", changes[0], changes[1])
	}
}
