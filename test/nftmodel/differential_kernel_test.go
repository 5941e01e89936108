// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// side is one of the two kernels.
type side struct {
	name   string
	socket nftkernel.Socket
	writer *nftkernel.Writer
}

// bothKernels returns the real kernel, in a namespace of its own, and the model.
func bothKernels(t *testing.T, family service.Family) (real, model *side) {
	t.Helper()
	n, err := netns.New("nft")
	if err != nil {
		t.Fatal(err)
	}
	open := func() (nftkernel.Socket, error) {
		var s nftkernel.Socket
		err := n.Do(func() (err error) {
			s, err = wire.Open()
			return err
		})
		return s, err
	}
	real, model = newSide(t, "the real kernel", family, open), newSide(t, "the model", family, NewKernel().Open)
	t.Cleanup(func() { // before the sockets are closed
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return real, model
}

func newSide(t *testing.T, name string, family service.Family, open func() (nftkernel.Socket, error)) *side {
	t.Helper()
	s := &side{name: name, writer: nftkernel.NewWriter(family, nftkernel.WriterConfig{Open: open})}
	var err error
	if s.socket, err = open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{s.socket.Close(), s.writer.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// generation counts transactions.
func (s *side) generation(t *testing.T) uint32 {
	t.Helper()
	var count uint32
	err := s.socket.Ask(context.Background(), unix.NFT_MSG_GETGEN, unix.NFPROTO_UNSPEC, false, nil, func(m netlink.Netfilter) {
		count = netlink.Find(m.Attrs, unix.NFTA_GEN_ID).Uint32()
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// commit returns the rejections, and by how much the generation grew.
func (s *side) commit(t *testing.T, messages ...message) (rejections []string, grew uint32) {
	t.Helper()
	before := s.generation(t)
	all, err := s.socket.Commit(transaction(unix.NFPROTO_IPV4, messages...))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		rejections = append(rejections, fmt.Sprintf("%d: %s about %v", r.Kind, unix.ErrnoName(r.Errno), r.About))
	}
	return rejections, s.generation(t) - before
}

func (s *side) read(t *testing.T) []dataplane.Object {
	t.Helper()
	objects, err := s.writer.Read(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return objects
}

// compareSides fails unless both hold the same.
func compareSides(t *testing.T, real, model *side) {
	t.Helper()
	want, got := map[dataplane.ID]string{}, map[dataplane.ID]string{}
	for s, held := range map[*side]map[dataplane.ID]string{real: want, model: got} {
		for _, o := range s.read(t) {
			held[o.ID] = o.Body
		}
	}
	for id, body := range want {
		if other, ok := got[id]; !ok || other != body {
			t.Errorf("%s %q: the real kernel has\n%x, the model\n%x (there: %t)", id.Container, id.Name, body, other, ok)
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			t.Errorf("%s %q: only the model has it", id.Container, id.Name)
		}
	}
}

// TestDifferential_Transactions: the model and the real kernel reject the same messages and elements of a transaction
// with the same errors, count the same generations, and have the same content afterwards.
func TestDifferential_Transactions(t *testing.T) {
	real, model := bothKernels(t, service.IPv4)
	for _, c := range transactions {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range []*side{real, model} {
				s.commit(t, inTable(unix.NFT_MSG_DELTABLE, 0))
				if rejections, _ := s.commit(t, standing...); rejections != nil {
					t.Fatalf("%s rejects what the cases stand on: %v", s.name, rejections)
				}
			}
			want, wantGrew := real.commit(t, c.messages...)
			got, gotGrew := model.commit(t, c.messages...)
			if c.stricter {
				if len(want) > 0 || len(got) == 0 {
					t.Errorf("the real kernel says %v, the model %v; want the model alone to reject", want, got)
				}
				return
			}
			if (len(want) > 0) != c.rejected {
				t.Errorf("the real kernel says %v; the case expects it to reject: %t", want, c.rejected)
			}
			if !slices.Equal(got, want) || gotGrew != wantGrew {
				t.Errorf("the real kernel says %v and grows by %d generations, the model %v and %d", want, wantGrew, got, gotGrew)
			}
			compareSides(t, real, model)
		})
	}
}

// TestDifferential_RandomTransactions: random transactions of messages from all cases, one after the other, lead to the
// same results in the model and the real kernel.
func TestDifferential_RandomTransactions(t *testing.T) {
	const rounds, messagesMax = 250, 6
	real, model := bothKernels(t, service.IPv4)
	var pool []message
	for _, c := range transactions {
		if !c.stricter {
			pool = append(pool, c.messages...)
		}
	}
	pool = slices.DeleteFunc(pool, func(m message) bool { return m.kind == unix.NFT_MSG_DELTABLE })
	random := rand.New(rand.NewPCG(1, 2))
	landed := 0
	for round := range rounds {
		if round%25 == 0 {
			for _, s := range []*side{real, model} {
				s.commit(t, inTable(unix.NFT_MSG_DELTABLE, 0))
				s.commit(t, standing...)
			}
		}
		some := make([]message, 1+random.IntN(messagesMax))
		for i := range some {
			some[i] = pool[random.IntN(len(pool))]
		}
		want, wantGrew := real.commit(t, some...)
		got, gotGrew := model.commit(t, some...)
		if !slices.Equal(got, want) || gotGrew != wantGrew {
			t.Errorf("round %d: the real kernel says %v and grows by %d generations, the model %v and %d", round, want, wantGrew, got, gotGrew)
		}
		if len(want) == 0 {
			landed++
			compareSides(t, real, model)
		}
		if t.Failed() {
			t.Fatalf("messages: %x", some)
		}
	}
	if landed < rounds/20 || landed == rounds {
		t.Errorf("%d of %d transactions landed: too few or too many to prove anything", landed, rounds)
	}
}

// TestDifferential_Queries: both kernels return the same errors for missing objects, and the same number of messages or
// elements for existing ones.
func TestDifferential_Queries(t *testing.T) {
	real, model := bothKernels(t, service.IPv4)
	for _, s := range []*side{real, model} {
		s.commit(t, standing...)
	}
	ours := text(1, nftrender.TableName)
	set := append(slices.Clone(ours), text(2, rangeSet)...)
	for _, q := range []struct {
		name  string
		kind  uint16
		all   bool
		attrs []byte
	}{
		{"table", unix.NFT_MSG_GETTABLE, false, ours},
		{"no such table", unix.NFT_MSG_GETTABLE, false, text(1, "none")},
		{"tables", unix.NFT_MSG_GETTABLE, true, nil},
		{"chain", unix.NFT_MSG_GETCHAIN, false, slices.Concat(ours, text(3, "a"))},
		{"no such chain", unix.NFT_MSG_GETCHAIN, false, slices.Concat(ours, text(3, "none"))},
		{"chains", unix.NFT_MSG_GETCHAIN, true, nil},
		{"rules", unix.NFT_MSG_GETRULE, true, ours},
		{"rules of a chain", unix.NFT_MSG_GETRULE, true, slices.Concat(ours, text(2, "in"))},
		{"rules of no chain", unix.NFT_MSG_GETRULE, true, slices.Concat(ours, text(2, "none"))},
		{"rules of no table", unix.NFT_MSG_GETRULE, true, text(1, "none")},
		{"set", unix.NFT_MSG_GETSET, false, set},
		{"no such set", unix.NFT_MSG_GETSET, false, slices.Concat(ours, text(2, "none"))},
		{"sets", unix.NFT_MSG_GETSET, true, ours},
		{"sets of no table", unix.NFT_MSG_GETSET, true, text(1, "none")},
		{"elements", unix.NFT_MSG_GETSETELEM, true, set},
		{"elements of no set", unix.NFT_MSG_GETSETELEM, true, slices.Concat(ours, text(2, "none"))},
		{"elements of no table", unix.NFT_MSG_GETSETELEM, true, slices.Concat(text(1, "none"), text(2, "none"))},
		{"element by a value inside", unix.NFT_MSG_GETSETELEM, false, slices.Concat(set,
			nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, entry(key("eeee\x00\x55\x00\x00"))))},
		{"no such element", unix.NFT_MSG_GETSETELEM, false, slices.Concat(set,
			nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, entry(key("eeee\x00\x99\x00\x00"))))},
		{"element by a short key", unix.NFT_MSG_GETSETELEM, false, slices.Concat(set,
			nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, entry(key("eeee"))))},
	} {
		answers := func(s *side) string {
			var said []string
			err := s.socket.Ask(t.Context(), q.kind, unix.NFPROTO_IPV4, q.all, q.attrs, func(m netlink.Netfilter) {
				n := 0
				for range netlink.Attrs(netlink.Find(m.Attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data) {
					n++
				}
				switch {
				case m.Kind != unix.NFT_MSG_NEWSETELEM:
					n = 0
				case n == 0:
					return // the kernel ends a list with an empty one
				}
				said = append(said, fmt.Sprintf("%d of family %d, %q %q, %d elements", m.Kind, m.Family,
					netlink.Find(m.Attrs, 1).Text(), netlink.Find(m.Attrs, 3).Data, n))
			})
			slices.Sort(said)
			return fmt.Sprint(err, said)
		}
		if got, want := answers(model), answers(real); got != want {
			t.Errorf("%s: the real kernel answers\n%s, the model\n%s", q.name, want, got)
		}
	}
}

// TestDifferential_Services: Services of all kinds, some with rejected elements and chains, lead to the same receipts
// and the same content in both kernels.
func TestDifferential_Services(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			real, model := bothKernels(t, family)
			harness := writertest.Harness{Family: family, Renderer: nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14})}
			world := writertest.NewFixture(family)
			both := bothWriters{t, real, model}
			p := writertest.NewPipeline(harness, dataplane.Writer{Write: both.Write, Read: both.Read}, world.Facts())
			p.Converge(t)
			for i, spec := range varied(world) {
				p.Serve(spec, world.Slice(world.A, world.B))
				batch := p.Plan()
				spoil(batch, i)
				if got := p.Write(t.Context(), t, batch); got.Outcome != dataplane.Rejected {
					t.Errorf("Service %d, spoilt: %v, want rejected", i, got)
				}
				p.Converge(t)
				p.Serve(spec, world.Slice(world.B, world.C))
				p.Converge(t)
			}
			p.Serve(world.Exposed())
			p.Converge(t)
			p.Forget(world.Spec().Key)
			p.Converge(t)
		})
	}
}

// varied are Services of one name, each of another kind.
func varied(world writertest.Fixture) []service.Spec {
	exposed, local, sticky, firewalled := world.Exposed(), world.Exposed(), world.Exposed(), world.Exposed()
	local.ExternalLocal, local.InternalLocal = true, true
	sticky.AffinitySeconds = 60
	firewalled.SourceRanges[world.Family] = []netip.Prefix{world.Allowed, world.ClusterCIDR}
	return []service.Spec{world.Spec(), exposed, local, sticky, firewalled}
}

// spoil puts something into one of a batch's objects that every kernel rejects.
func spoil(batch *dataplane.Batch, n int) {
	for i := range batch.Changes {
		change := &batch.Changes[(i+n*7)%len(batch.Changes)]
		if change.After != nil && change.After.Kind == dataplane.Element {
			bad := *change.After
			bad.Body += string(u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END))
			change.After = &bad
			return
		}
	}
}

// bothWriters writes into both kernels, and compares.
type bothWriters struct {
	t           *testing.T
	real, model *side
}

func (b bothWriters) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	want, got := b.real.writer.Write(ctx, batch), b.model.writer.Write(ctx, batch)
	if got.Outcome != want.Outcome || !slices.Equal(got.Suspects, want.Suspects) || got.Written != want.Written {
		b.t.Errorf("the real kernel's receipt is %v, the model's %v", want, got)
	}
	compareSides(b.t, b.real, b.model)
	return want
}

func (b bothWriters) Read(ctx context.Context) ([]dataplane.Object, error) {
	return b.model.writer.Read(ctx)
}
