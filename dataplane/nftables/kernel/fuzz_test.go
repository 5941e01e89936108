// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// answers is a kernel that gives the same answers whatever it is asked: records of the kind
// of the question (one byte), a length (two) and attributes. It carries out every
// transaction and keeps nothing.
type answers []byte

func (a answers) Ask(_ context.Context, kind uint16, family uint8, _ bool, asked []byte, each func(netlink.Netfilter)) error {
	for b := []byte(a); len(b) >= 3; {
		size := min(int(binary.LittleEndian.Uint16(b[1:])), len(b)-3)
		attrs := b[3 : 3+size]
		about := func(attrs []byte) string { return netlink.Find(attrs, unix.NFTA_SET_ELEM_LIST_SET).Text() }
		if uint16(b[0]) == kind && (kind != unix.NFT_MSG_GETSETELEM || about(attrs) == about(asked)) {
			each(netlink.Netfilter{Kind: kind, Family: family, Attrs: attrs})
		}
		b = b[3+size:]
	}
	return nil
}

func (a answers) Commit(*wire.Transaction) ([]*wire.Rejection, error) { return nil, nil }
func (a answers) Port() uint32                                        { return 1 }
func (a answers) Room() int                                           { return 1 << 20 }
func (a answers) Close() error                                        { return nil }

// recorder keeps the answers of a kernel.
type recorder struct {
	kernel.Socket
	heard answers
}

func (r *recorder) Ask(ctx context.Context, kind uint16, family uint8, all bool, asked []byte, each func(netlink.Netfilter)) error {
	return r.Socket.Ask(ctx, kind, family, all, asked, func(m netlink.Netfilter) {
		r.heard = append(r.heard, byte(kind))
		r.heard = binary.LittleEndian.AppendUint16(r.heard, uint16(len(m.Attrs)))
		r.heard = append(r.heard, m.Attrs...)
		each(m)
	})
}

// heardOf returns what a kernel says with a Service in it.
func heardOf(f *testing.F, view *service.View, facts *service.NodeFacts) answers {
	f.Helper()
	model := nftmodel.NewKernel()
	r := &recorder{}
	r.Socket, _ = model.Open()
	writer := kernel.NewWriter(service.IPv4, kernel.WriterConfig{Open: func() (kernel.Socket, error) { return r, nil }})
	renderer := render.NewRenderer(service.IPv4, render.Options{MasqueradeBit: 14})
	book := ledger.New(nil, renderer.Naming(), nil)
	book.Want(dataplane.NewFragment(service.Node, renderer.Node(facts)))
	book.Want(dataplane.NewFragment(view.Key, renderer.Service(context.Background(), view, facts)))
	if got := writer.Write(f.Context(), book.Plan()); got.Outcome != dataplane.Landed {
		f.Fatal(got)
	}
	r.heard = nil
	if _, err := writer.Read(f.Context()); err != nil {
		f.Fatal(err)
	}
	return r.heard
}

// FuzzRead reads any bytes as the kernel's description of the table. Reading is a function of them and limited in size,
// its text contains nothing that moves a terminal's cursor, and every object found can be removed.
func FuzzRead(f *testing.F) {
	facts := &service.NodeFacts{Name: "n1"}
	facts.NodePorts[service.IPv4].All = true
	view := plain(1, 2, 0)
	f.Add([]byte(heardOf(f, view, facts)))
	view.Ports[service.IPv4][0].AffinitySeconds = 60
	f.Add([]byte(heardOf(f, view, facts)))
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 1<<15 {
			return
		}
		open := func() (kernel.Socket, error) { return answers(said), nil }
		writer := kernel.NewWriter(service.IPv4, kernel.WriterConfig{Open: open})
		objects, err := writer.Read(t.Context())
		again, errAgain := writer.Read(t.Context())
		if err != nil || errAgain != nil || !slices.EqualFunc(objects, again, func(a, b dataplane.Object) bool {
			return a.ID == b.ID && dataplane.Same(&a, &b)
		}) {
			t.Fatalf("two readings differ: %v, %v", err, errAgain)
		}
		size := 0
		for i := range objects {
			size += len(objects[i].ID.Name) + len(objects[i].Body)
			where, lines := render.Lines(service.IPv4, &objects[i])
			for _, line := range append(lines, where) {
				if strings.ContainsFunc(line, unicode.IsControl) {
					t.Errorf("a line for a terminal: %q", line)
				}
			}
			_, _ = render.Origin{}.Owner(&objects[i])
		}
		// A set of ours gets its description even if the kernel's says nothing of it.
		if most := 400 + 60*len(said) + repeated(said); size > most {
			t.Errorf("%d bytes of objects from %d", size, len(said))
		}
		removeAll(t, writer, objects)
	})
}

// repeated bounds what is listed more than once: the elements of a set that the answer names
// several times.
func repeated(said []byte) int { return len(said) * len(said) / 20 }

// removeAll lets an audit find objects that nobody wants.
func removeAll(t *testing.T, writer *kernel.Writer, objects []dataplane.Object) {
	t.Helper()
	book := ledger.New(nil, render.Naming{}, nil)
	drift := book.Observe(objects)
	for batch := book.Plan(); batch != nil; batch = nil {
		receipt := writer.Write(t.Context(), batch)
		if receipt.Outcome == dataplane.Landed {
			book.Settle(batch, receipt)
		} else if receipt.Err == nil {
			t.Errorf("%v without an error, of %+v", receipt.Outcome, drift)
		}
	}
}
