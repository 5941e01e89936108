package nftmodel

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// serving returns a kernel with one Service of some endpoints, and a packet to it.
func serving(tb testing.TB, endpoints int) (*Kernel, Packet) {
	tb.Helper()
	world := writertest.NewFixture(service.IPv4)
	renderer := nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14})
	facts := world.Facts()
	spec, addrs := world.Spec(), []netip.Addr{}
	for addr := world.B; len(addrs) < endpoints; addr = addr.Next() {
		addrs = append(addrs, addr)
	}
	view := service.Resolve(spec.Key, &spec, []*service.Slice{world.Slice(addrs...)}, &facts)
	k := NewKernel()
	objects := append(renderer.Node(&facts), renderer.Service(context.Background(), &view, &facts)...)
	fragment := dataplane.NewFragment(service.Node, objects)
	batch := &dataplane.Batch{}
	for i := range fragment.Objects {
		batch.Changes = append(batch.Changes, dataplane.Change{ID: fragment.Objects[i].ID, After: &fragment.Objects[i]})
	}
	writer := nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{Open: k.Open})
	if got := writer.Write(tb.Context(), batch); got.Outcome != dataplane.Landed {
		tb.Fatal(got)
	}
	return k, packet(netip.AddrPortFrom(world.Pod, 40000).String(), netip.AddrPortFrom(world.ClusterIP, 80).String())
}

func BenchmarkPackets(b *testing.B) {
	for _, endpoints := range []int{10, 1000} {
		k, p := serving(b, endpoints)
		b.Run(fmt.Sprintf("trace/%d", endpoints), func(b *testing.B) {
			for b.Loop() {
				k.Trace(p, never)
			}
		})
		b.Run(fmt.Sprintf("outcomes/%d", endpoints), func(b *testing.B) {
			for b.Loop() {
				k.Outcomes(p)
			}
		})
	}
}

// BenchmarkElement exchanges one element of a large map, and adds one that leads to
// a chain, which has all of them validated.
func BenchmarkElement(b *testing.B) {
	const size = 10000
	k := NewKernel()
	var list [][]byte
	for i := range uint32(size) {
		list = append(list, entry(key(host(i)), to(unix.NFTA_SET_ELEM_DATA, unix.NFT_GOTO, "b")))
	}
	must(b, k, unix.NFPROTO_IPV4, standing...)
	for i := 0; i < size; i += 100 {
		must(b, k, unix.NFPROTO_IPV4, addElements(verdictMap, list[i:i+100]...))
	}
	for b.Loop() {
		must(b, k, unix.NFPROTO_IPV4, deleteElements(verdictMap, entry(key(host(7)))), addElements(verdictMap, list[7]))
	}
}
