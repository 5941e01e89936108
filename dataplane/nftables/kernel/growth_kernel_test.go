// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// affine is the n-th Service with affinity.
func affine(n int) *service.View {
	view := plain(n, 3, 0)
	view.Ports[service.IPv4][0].AffinitySeconds = 60
	return view
}

// TestWriter_ChangeSizeAmongManyServices: a change of one Service sends the same amount for any number of Services, and
// reads nothing. nft creates the same table from the statements.
func TestWriter_ChangeSizeAmongManyServices(t *testing.T) {
	sent := func(services int) (w *world, first, then string) {
		var r kernel.Recorder
		config, asked := asks()
		open := config.Open
		w = newWorld(t, service.IPv4, kernel.WriterConfig{Open: func() (kernel.Socket, error) {
			socket, err := open()
			r.Socket = socket
			return &r, err
		}})
		w.fill(services, 10)
		w.commit()
		first = r.Sent[0]
		clear(asked)
		for _, change := range []struct {
			name string
			view *service.View
			gone bool
		}{
			{"an endpoint is replaced", plain(7, 10, 1), false},
			{"scaled up", plain(7, 40, 1), false},
			{"affinity", affine(8), false},
			{"no affinity", plain(8, 3, 0), false},
			{"added", plain(60000, 10, 0), false},
			{"removed", plain(9, 10, 0), true},
		} {
			r.Sent = nil
			if change.gone {
				w.want(change.view.Key, nil)
			} else {
				w.serve(change.view)
			}
			w.commit()
			then += "# " + change.name + "\n" + strings.Join(r.Sent, "# next transaction\n")
		}
		if len(asked) > 0 {
			t.Errorf("among %d Services: asks %v", services, asked)
		}
		return w, first, then
	}
	w, first, few := sent(100)
	rendertest.Golden(t, "changes.nft", few)
	if _, _, many := sent(2000); many != few {
		t.Errorf("among 100 Services sends\n%s\namong 2000\n%s", few, many)
	}
	loaded := newWorld(t, service.IPv4, kernel.WriterConfig{})
	loaded.nft(first+few, "-f", "-")
	compare(t, loaded.read(), w.read(), "what nft changed")
}

// TestWriter_SharedSetsFoundFirst: shared sets come before the sets of single Services in the kernel's list. The kernel
// walks this list for each lookup, which must not take longer with more Services.
func TestWriter_SharedSetsFoundFirst(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	for n := range 40 {
		w.serve(affine(n))
	}
	w.commit()
	shared := map[string]bool{}
	for _, o := range w.renderer.Node(&w.facts) {
		if o.ID.Container == "set" {
			shared[o.ID.Name] = true
		}
	}
	names := w.setNames()
	last := 0
	for at, name := range names {
		if shared[name] {
			last = at + 1
		}
	}
	if len(names) < len(shared)+40 || last == 0 || last > len(shared) {
		t.Errorf("of %d sets, the last shared one is at place %d of the kernel's list, want it among the first %d",
			len(names), last, len(shared))
	}
}

// setNames returns the names of the table's sets in the order of the kernel's list.
func (w *world) setNames() (names []string) {
	w.Helper()
	err := w.node.Do(func() error {
		socket, err := wire.Open()
		if err != nil {
			return err
		}
		err = socket.Ask(context.Background(), unix.NFT_MSG_GETSET, unix.NFPROTO_IPV4, true, nil, func(m netlink.Netfilter) {
			names = append(names, netlink.Find(m.Attrs, unix.NFTA_SET_NAME).Text())
		})
		return errors.Join(err, socket.Close())
	})
	if err != nil {
		w.Fatal(err)
	}
	return names
}
