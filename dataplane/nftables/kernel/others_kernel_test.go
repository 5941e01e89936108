// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// The other program's elements: two sets have the same address, which one transaction
// replaces in both. A reading with an address in one set only mixes two moments.
const churnedElements = 20000

var churnOne, churnTwo = render.SetName("active-cluster-ips"), render.SetName("nodeport-addresses")

// churn replaces the n-th pair by the one after it, in one transaction.
func churn(t *testing.T, socket *wire.Socket, n int, fresh bool) {
	t.Helper()
	tr := wire.NewTransaction(unix.NFPROTO_IPV4)
	for _, set := range []string{churnOne, churnTwo} {
		if !fresh {
			elements(tr, unix.NFT_MSG_DELSETELEM, set, n, 1)
			elements(tr, unix.NFT_MSG_NEWSETELEM, set, n+churnedElements, 1)
		} else {
			for from := 0; from < churnedElements; from += 1000 {
				elements(tr, unix.NFT_MSG_NEWSETELEM, set, from, 1000)
			}
		}
	}
	if rejections, err := socket.Commit(tr); err != nil || len(rejections) > 0 {
		t.Errorf("churn: %v, %v", rejections, err)
	}
}

// elements adds or deletes addresses.
func elements(tr *wire.Transaction, kind uint16, set string, from, count int) {
	flags := uint16(0)
	if kind == unix.NFT_MSG_NEWSETELEM {
		flags = unix.NLM_F_CREATE
	}
	tr.Begin(kind, flags)
	tr.Text(unix.NFTA_SET_ELEM_LIST_TABLE, render.TableName)
	tr.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
	list := tr.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for n := from; n < from+count; n++ {
		element := tr.Nest(unix.NFTA_LIST_ELEM)
		key := tr.Nest(unix.NFTA_SET_ELEM_KEY)
		tr.Add(func(b []byte) []byte {
			return netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, binary.BigEndian.AppendUint32(nil, uint32(10<<24+n)))
		})
		tr.Unnest(key)
		tr.Unnest(element)
	}
	tr.Unnest(list)
}

// torn counts the addresses that are in only one of the two sets.
func torn(objects []dataplane.Object) (pairs, single int) {
	seen := map[string]int{}
	for _, o := range objects {
		if set, ok := strings.CutPrefix(o.ID.Container, "@"); ok && (set == churnOne || set == churnTwo) {
			seen[o.ID.Name]++
		}
	}
	for _, n := range seen {
		if n == 1 {
			single++
		} else {
			pairs++
		}
	}
	return pairs, single
}

// TestRead_IsOneMoment: while another program changes elements of our sets between any two queries of a reading, the
// reading returns a state that the table was in, or an error. (The kernel reports that a list of chains was
// interrupted, but never a list of elements. Once every reading mixed moments and was accepted.)
func TestRead_IsOneMoment(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.commit()
	var socket *wire.Socket
	check(t, w.node.Do(func() (err error) { socket, err = wire.Open(); return err }))
	t.Cleanup(func() { check(t, socket.Close()) })
	churn(t, socket, 0, true)
	n, rests := 0, false
	w.restart(kernel.WriterConfig{Open: func() (kernel.Socket, error) {
		ours, err := wire.Open()
		return meddling{Socket: ours, before: func() {
			if !rests {
				churn(t, socket, n, false)
				n++
			}
		}}, err
	}})
	for range 3 {
		objects, err := w.writer.Read(t.Context())
		if errors.Is(err, netlink.ErrInterrupted) {
			continue
		}
		check(t, err)
		if pairs, single := torn(objects); single > 0 || pairs != churnedElements {
			t.Fatalf("a reading shows %d pairs and %d addresses without their pair: no moment was like that", pairs, single)
		}
	}
	rests = true
	if pairs, single := torn(w.read()); n == 0 || single > 0 || pairs != churnedElements {
		t.Errorf("when the stranger rests, after %d changes: %d pairs, %d single", n, pairs, single)
	}
}

// meddling is a socket with another program, which acts before each question and, if during is set, at each message of a
// reply.
type meddling struct {
	*wire.Socket
	before, during func()
}

// Ask is for kernel.Socket.
func (m meddling) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(netlink.Netfilter)) error {
	m.before()
	return m.Socket.Ask(ctx, kind, family, all, attrs, func(message netlink.Netfilter) {
		if m.during != nil {
			m.during()
		}
		each(message)
	})
}

// TestRead_OtherFamilyDoesNotInterrupt: a transaction in the other family does not interrupt a reading, although the
// kernel reports lists of chains and rules as interrupted by a change of any table. (Once, nothing was repaired while
// the other family's rules changed all the time.) A transaction in a table of our family interrupts, because the list
// of chains includes all its tables.
func TestRead_OtherFamilyDoesNotInterrupt(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	for n := range 300 {
		view := plain(n, 5, 0)
		view.Ports[service.IPv4][0].AffinitySeconds = 60 // a separate chain
		w.serve(view)
	}
	w.commit()
	w.nft("add table ip other; add table ip6 other", "-f", "-")
	var socket *wire.Socket
	check(t, w.node.Do(func() (err error) { socket, err = wire.Open(); return err }))
	t.Cleanup(func() { check(t, socket.Close()) })
	want := len(w.read())
	for family, interrupted := range map[uint8]bool{unix.NFPROTO_IPV6: false, unix.NFPROTO_IPV4: true} {
		messages := 0
		w.restart(kernel.WriterConfig{Open: func() (kernel.Socket, error) {
			ours, err := wire.Open()
			return meddling{ours, func() {}, func() {
				if messages++; messages%200 == 0 {
					changeOther(t, socket, family)
				}
			}}, err
		}})
		objects, err := w.writer.Read(t.Context())
		if errors.Is(err, netlink.ErrInterrupted) != interrupted || !interrupted && len(objects) != want {
			t.Errorf("family %d changes at %d messages: %d objects of %d, %v", family, messages, len(objects), want, err)
		}
	}
}

// changeOther makes and deletes a chain in the other program's table of a family.
func changeOther(t *testing.T, socket *wire.Socket, family uint8) {
	t.Helper()
	tr := wire.NewTransaction(family)
	for _, kind := range []uint16{unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN} {
		tr.Begin(kind, unix.NLM_F_CREATE) // which a deletion ignores
		tr.Text(unix.NFTA_CHAIN_TABLE, "other")
		tr.Text(unix.NFTA_CHAIN_NAME, "c")
	}
	if rejections, err := socket.Commit(tr); err != nil || len(rejections) > 0 {
		t.Errorf("the stranger: %v, %v", rejections, err)
	}
}

// TestRead_OthersTablesDoNotInterrupt: a program that changes its own table all the time increases the generation
// during every reading, but does not prevent reading our table.
func TestRead_OthersTablesDoNotInterrupt(t *testing.T) {
	w := newWorld(t, service.IPv4, kernel.WriterConfig{})
	w.commit()
	w.nft("add table ip other", "-f", "-")
	var socket *wire.Socket
	check(t, w.node.Do(func() (err error) { socket, err = wire.Open(); return err }))
	t.Cleanup(func() { check(t, socket.Close()) })
	churn(t, socket, 0, true)
	theirs := func() { changeOther(t, socket, unix.NFPROTO_IPV4) }
	w.restart(kernel.WriterConfig{Open: func() (kernel.Socket, error) {
		ours, err := wire.Open()
		return meddling{Socket: ours, before: theirs}, err
	}})
	for range 3 {
		if pairs, single := torn(w.read()); single > 0 || pairs != churnedElements {
			t.Errorf("%d pairs, %d single", pairs, single)
		}
	}
}

// TestWatch_TransactionInBothFamilies: both families' watches report a foreign transaction that changes both families.
// The kernel announces its changes in the same datagrams. (Once an IPv6 Service was missing for half a minute after a
// script had deleted something of both families.)
func TestWatch_TransactionInBothFamilies(t *testing.T) {
	ipv4 := newWorld(t, service.IPv4, kernel.WriterConfig{})
	ipv6 := newWorld(t, service.IPv6, kernel.WriterConfig{})
	// Both are on the first world's node.
	ipv6.node = ipv4.node
	ipv6.restart(kernel.WriterConfig{})
	worlds := service.PerFamily[*world]{ipv4, ipv6}
	var heard service.PerFamily[chan time.Time]
	for family, w := range worlds {
		w.commit()
		heard[family] = make(chan time.Time, 10000)
		go func() {
			_ = w.writer.Watch(t.Context(), func(dataplane.ForeignProcess) { heard[family] <- time.Now() })
		}()
		w.watched(heard[family])
		w.audit()
		w.commit()
	}
	// Two families one after the other, and many messages of one before those of the
	// other: the kernel fills its datagrams completely.
	for _, change := range []string{
		"add element ip kube-proxy ${active-cluster-ips} { 192.0.2.1 }; add element ip6 kube-proxy ${active-cluster-ips} { fd00::1 }",
		"add chain inet other c; add element ip6 kube-proxy ${active-cluster-ips} { fd00::2 }; add element ip kube-proxy ${active-cluster-ips} { 192.0.2.2 }",
		"add element ip kube-proxy ${active-cluster-ips} { 192.0.3.1, 192.0.3.2, 192.0.3.3, 192.0.3.4, 192.0.3.5 }; add element ip6 kube-proxy ${active-cluster-ips} { fd00::3 }",
	} {
		drain(heard[:]...)
		ipv4.nft("add table inet other; "+change, "-f", "-")
		for family, w := range worlds {
			select {
			case <-heard[family]:
			case <-time.After(testenv.Patience):
				t.Errorf("%v: %q was not heard", service.Family(family), change)
			}
			w.audit()
			w.commit()
		}
	}
	// What one writer does to its table does not concern the other.
	drain(heard[:]...)
	for n := range 300 {
		ipv4.serve(plain(n, 5, 0))
	}
	ipv4.commit()
	time.Sleep(50 * time.Millisecond)
	if n := len(heard[service.IPv6]); n > 0 {
		t.Errorf("IPv6 heard %d messages about a change of the IPv4 table", n)
	}
}

func drain(channels ...chan time.Time) {
	for _, c := range channels {
		for len(c) > 0 {
			<-c
		}
	}
}

// TestWatch_LittleMemory: Watch works with the memory that Linux before 6.7 grants a socket's filter, a sixth of
// today's. With even less memory, the filter is simpler. (Once Watch failed, and other programs' changes waited for the
// audit.)
func TestWatch_LittleMemory(t *testing.T) {
	const old, little = "20480", "1024"
	for _, granted := range []string{old, little} {
		t.Run(granted, func(t *testing.T) {
			w := newWorld(t, service.IPv4, kernel.WriterConfig{})
			w.grant(granted)
			w.commit()
			heard := make(chan time.Time, 1000)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.writer.Watch(ctx, func(dataplane.ForeignProcess) { heard <- time.Now() }) }()
			select {
			case err := <-ended:
				t.Fatalf("with %s bytes: %v", granted, err)
			case <-time.After(100 * time.Millisecond):
			}
			w.watched(heard)
			w.hears(heard, "flush chain "+w.table()+" services")
			w.audit()
			w.commit()
			w.nft("add table ip6 kube-proxy; add chain ip6 kube-proxy c; delete table ip6 kube-proxy", "-f", "-")
			w.hearsNothing(heard)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Watch ended with %v", err)
			}
		})
	}
}

// grant sets how much memory a socket's options may take. Older kernels have one limit for
// the machine, which the test does not change.
func (w *world) grant(bytes string) {
	w.Helper()
	if err := w.node.Sysctl("net.core.optmem_max", bytes); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
}
