// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// optmem is net.core.optmem_max before Linux 6.7: what the options of a socket may occupy, its filter
// included. Since Linux 6.8 each network namespace has its own.
const optmem = "20480"

// rangesApart returns n lines of source ranges that do not adjoin.
func rangesApart(family service.Family, n int) (lines []string) {
	for i := range n {
		if family == service.IPv4 {
			lines = append(lines, fmt.Sprintf("allow 20.%d.%d.0/24", i/100, i%100*2))
		} else {
			lines = append(lines, fmt.Sprintf("allow 2001:db8:f::%x/128", 2*i))
		}
	}
	return lines
}

// TestKernelFilter_ManySourceRanges: with a kernel that allows only small socket filters, a Service with many source
// ranges is served within its ranges only, and other Services are still served, when it is added and when it changes.
func TestKernelFilter_ManySourceRanges(t *testing.T) {
	filtered := service.PerFamily[int]{250, 110} // a filter has room for so many
	counts := service.PerFamily[[]int]{{250, 500}, {110, 200}}
	if testenv.All() {
		counts = service.PerFamily[[]int]{{100, 120, 250, 500, 1000}, {30, 40, 80, 110, 200}}
	}
	for _, family := range service.Families {
		for _, n := range counts[family] {
			t.Run(fmt.Sprintf("%s/%d", family, n), func(t *testing.T) {
				w := newWorld(t, family, userspace.Config{})
				if err := w.node.Sysctl("net.core.optmem_max", optmem); !errors.Is(err, fs.ErrNotExist) {
					check(t, err)
				}
				testManyRanges(w, rangesApart(family, n), n <= filtered[family])
			})
		}
	}
}

func testManyRanges(w *world, ranges []string, silent bool) {
	expectUnserved := func(at netip.AddrPort) {
		w.Helper()
		if w.expectSilence("udp", at); silent {
			w.expectSilence("tcp", at)
		} else {
			w.expectUnserved(at)
		}
	}
	w.backend(0)
	w.backend(1)
	a := addresses[w.family]
	guarded := netip.AddrPortFrom(a.other, 80)
	mine := "allow " + netns.Single(a.client).String()
	set := func(at netip.AddrPort, protocol service.Protocol, lines ...[]string) dataplane.Change {
		var all []string
		for _, part := range lines {
			all = append(all, part...)
		}
		return w.want(listenerOf(protocol, at, all...))
	}
	w.write(w.want(addressOf(a.cluster)), w.want(addressOf(a.other)))
	// The identities of others are before and behind it.
	before, behind := netip.AddrPortFrom(a.cluster, 81), netip.AddrPortFrom(a.other, 81)
	w.write(set(before, service.TCP, w.to(0)), set(guarded, service.TCP, ranges, w.to(0)),
		set(guarded, service.UDP, ranges, w.to(0)), set(behind, service.TCP, w.to(0)))
	for _, at := range []netip.AddrPort{before, behind} {
		w.names(w.client, "tcp", at, 1)
	}
	expectUnserved(guarded)
	w.write(set(guarded, service.TCP, ranges, w.to(1)), set(guarded, service.UDP, ranges, w.to(1)))
	expectUnserved(guarded)
	w.write(set(guarded, service.TCP, ranges, []string{mine}, w.to(1)), set(guarded, service.UDP, ranges, []string{mine}, w.to(1)))
	for _, network := range []string{"tcp", "udp"} {
		if got := w.names(w.client, network, guarded, 1); got["b"] != 1 {
			w.Errorf("%s within the ranges: %v, want b", network, got)
		}
	}
	w.write(set(guarded, service.TCP, w.to(0)))
	w.names(w.client, "tcp", guarded, 1)
}

// TestKernelFilter_WithoutRoom: a socket with room for one filter keeps it across a change. A socket without room for a
// filter is still opened, and serves only clients within the ranges.
func TestKernelFilter_WithoutRoom(t *testing.T) {
	ranges := service.PerFamily[int]{250, 110} // about 1,000 instructions of 8 bytes
	for name, room := range map[string]struct {
		bytes  string
		silent bool
	}{"one": {"12288", true}, "none": {"2048", false}} {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			t.Run(fmt.Sprintf("%s/%s", name, family), func(t *testing.T) {
				w := newWorld(t, family, userspace.Config{})
				check(t, w.node.Sysctl("net.core.optmem_max", room.bytes)) // of the namespace since Linux 6.8
				testManyRanges(w, rangesApart(family, ranges[family]), room.silent)
			})
		}
	}
}

// expectUnserved wants a client without an answer of an endpoint.
func (w *world) expectUnserved(at netip.AddrPort) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 200*time.Millisecond)
	defer cancel()
	if answer, err := netnstest.Ask(ctx, w.client, "tcp", at); err == nil {
		w.Errorf("%s: %v answered, want nobody", at, answer)
	}
}

// TestKernelListeners_DescriptorExhaustion: if the host has no file descriptor for one listener, the other listeners of
// the batch are opened, and the receipt has no suspect.
func TestKernelListeners_DescriptorExhaustion(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		w.backend(0)
		opened := 0
		f := userspace.NewForwarder(userspace.Addresses, w.family, userspace.Config{Relay: relay.Config{Inside: func(open func() error) error {
			if opened++; opened == 2 {
				return unix.EMFILE
			}
			return w.node.Do(open)
		}}})
		check(t, w.writer.Close())
		w.forwarder.Close()
		w.forwarder, opened = f, 0
		w.writer = w.newWriter()
		address := w.want(addressOf(addresses[w.family].cluster))
		var changes []dataplane.Change
		for port := range uint16(3) {
			changes = append(changes, w.want(listenerOf(service.TCP, w.cluster(80+port), w.to(0)...)))
		}
		receipt := w.attempt(append(changes, address)...)
		if receipt.Outcome != dataplane.Busy || len(receipt.Suspects) > 0 {
			w.Errorf("got %+v, want it busy without suspects", receipt)
		}
		w.expectRefused("tcp", w.cluster(81))
		for _, port := range []uint16{80, 82} {
			w.names(w.client, "tcp", w.cluster(port), 1)
		}
		w.write(changes[1])
		w.names(w.client, "tcp", w.cluster(81), 1)
	})
}
