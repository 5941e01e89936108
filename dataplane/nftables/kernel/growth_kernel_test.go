package kernel_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// affine is the n-th Service with affinity.
func affine(n int) *service.View {
	view := plain(n, 3, 0)
	view.Ports[service.IPv4][0].AffinitySeconds = 60
	return view
}

// exchanged is what goes between a writer and the kernel.
type exchanged struct{ transactions, messages, bytes, questions int }

// TestAChangeIsAsLargeAmongManyServices: what a change of one Service exchanges with the kernel
// does not depend on how many others there are, and it asks nothing.
func TestAChangeIsAsLargeAmongManyServices(t *testing.T) {
	sent := func(services int) map[string]exchanged {
		w := newWorld(t, service.IPv4, kernel.WriterConfig{})
		w.fill(services, 10)
		w.commit()
		var sum exchanged
		config, asked := asks()
		open := config.Open
		config.Open = func() (kernel.Socket, error) {
			socket, err := open()
			return measuring{socket.(asking), &sum}, err
		}
		w.use(config)
		all := map[string]exchanged{}
		for _, change := range []struct {
			name string
			view *service.View
			gone bool
		}{
			{"an endpoint replaced", plain(7, 10, 1), false},
			{"scaled up", plain(7, 40, 1), false},
			{"affinity", affine(8), false},
			{"added", plain(60000, 10, 0), false},
			{"removed", plain(9, 10, 0), true},
		} {
			sum = exchanged{}
			clear(asked)
			if change.gone {
				w.want(change.view.Key, nil)
			} else {
				w.serve(change.view)
			}
			w.commit()
			for _, count := range asked {
				sum.questions += count
			}
			if sum.transactions == 0 || sum.questions > 0 {
				t.Errorf("among %d, %s: %+v, want transactions and no questions", services, change.name, sum)
			}
			all[change.name] = sum
		}
		return all
	}
	if few, many := sent(100), sent(2000); !reflect.DeepEqual(few, many) {
		t.Errorf("among 100 Services %+v\namong 2000 %+v", few, many)
	}
}

// measuring is a socket that measures its transactions.
type measuring struct {
	asking
	sum *exchanged
}

// Commit is for kernel.Socket.
func (m measuring) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	m.sum.transactions++
	m.sum.messages += t.Messages()
	m.sum.bytes += t.Bytes()
	return m.asking.Commit(t)
}

// TestSharedSetsAreFoundFirst: the kernel looks a set up by walking a list, so what it walks for
// an element of a shared set must not grow with the sets of single Services.
func TestSharedSetsAreFoundFirst(t *testing.T) {
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
