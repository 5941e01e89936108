// SPDX-License-Identifier: Apache-2.0

package localport_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/service"
)

// TestKernelWriter_ListenersComeMoveAndGo: writes open listeners, move them to another target and close them, for TCP
// and UDP.
func TestKernelWriter_ListenersComeMoveAndGo(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		first := w.backend("first", netip.AddrPortFrom(w.own(), nodePort))
		second := w.backend("second", netip.AddrPortFrom(w.second(), nodePort))
		var came, moved, gone []dataplane.Change
		for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
			came = append(came, w.want(w.listener(protocol, nodePort, first.Addr())))
			moved = append(moved, w.want(w.listener(protocol, nodePort, second.Addr())))
			gone = append(gone, w.gone(w.listener(protocol, nodePort, second.Addr())))
		}
		w.expectRefused("tcp", nodePort)
		w.write(came...)
		for _, network := range []string{"tcp", "udp"} {
			w.expectAnswer(network, nodePort, "first")
		}
		if n := w.writer.Stats().Listeners.Load(); n != 2 {
			w.Errorf("%d listeners, want 2", n)
		}
		w.write(moved...)
		for _, network := range []string{"tcp", "udp"} {
			w.expectAnswer(network, nodePort, "second")
		}
		w.write(gone...)
		for _, network := range []string{"tcp", "udp"} {
			w.expectRefused(network, nodePort)
		}
		if left := w.read(); len(left) != 0 {
			w.Errorf("left: %v", left)
		}
		w.write(came...)
		w.expectAnswer("tcp", nodePort, "first")
		check(w, first.Close())
		check(w, second.Close())
	})
}

// TestKernelWriter_ListenersOfOneFamily: a listener binds only its family's loopback address. Other processes can bind
// the other one and the node's addresses.
func TestKernelWriter_ListenersOfOneFamily(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		w.write(w.want(w.listener(service.TCP, nodePort, netip.AddrPortFrom(w.own(), 1))),
			w.want(w.listener(service.UDP, nodePort, netip.AddrPortFrom(w.own(), 1))))
		for _, other := range []netip.Addr{w.own(), addresses[1-w.family].loopback} {
			check(w, w.backend("other", netip.AddrPortFrom(other, nodePort)).Close())
		}
	})
}

// TestKernelWriter_TakenPortRefusedAlone: only the Service whose port is taken is rejected, as a proven suspect; the
// rest of the batch lands. It lands once the port is free.
func TestKernelWriter_TakenPortRefusedAlone(t *testing.T) {
	for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
		t.Run(protocol.String(), func(t *testing.T) {
			eachFamily(t, localport.Config{}, func(w *world) { w.expectSuspect(protocol) })
		})
	}
}

func (w *world) expectSuspect(protocol service.Protocol) {
	w.Helper()
	network := protocol.String()
	thief := w.backend("thief", w.listen(30081))
	first := w.backend("first", netip.AddrPortFrom(w.own(), nodePort))
	second := w.backend("second", netip.AddrPortFrom(w.second(), nodePort))
	moves, goes := w.listener(protocol, nodePort, first.Addr()), w.listener(protocol, 30082, first.Addr())
	w.write(w.want(moves), w.want(goes))
	guilty := w.want(w.listener(protocol, 30081, first.Addr()))
	guilty.Owner = service.Key{Namespace: "ns1", Name: "guilty"}
	receipt := w.attempt(guilty, w.want(w.listener(protocol, nodePort, second.Addr())), w.gone(goes),
		w.want(w.listener(protocol, 30083, first.Addr())))
	if receipt.Outcome != dataplane.Rejected || !receipt.Proven || !errors.Is(receipt.Err, unix.EADDRINUSE) ||
		!slices.Equal(receipt.Suspects, []service.Key{guilty.Owner}) {
		w.Errorf("got %v, suspects %v", receipt, receipt.Suspects)
	}
	for _, part := range []string{"Service ns1/guilty", network + "/" + w.listen(30081).String(), "stop it",
		fmt.Sprintf("port 30081 on %s is held by this process (pid %d)", w.listen(0).Addr(), os.Getpid())} {
		if !strings.Contains(receipt.Err.Error(), part) {
			w.Errorf("%q does not say %q", receipt.Err, part)
		}
	}
	w.expectAnswer(network, nodePort, "second")
	w.expectRefused(network, 30082)
	w.expectAnswer(network, 30083, "first")
	w.expectAnswer(network, 30081, "thief")
	check(w, thief.Close())
	w.write(guilty)
	w.expectAnswer(network, 30081, "first")
	check(w, first.Close())
	check(w, second.Close())
}

// TestKernelWriter_MissingLoopbackNoSuspect: without the loopback address, Probe fails and a write is busy without a
// suspect. The write lands once the address is back.
func TestKernelWriter_MissingLoopbackNoSuspect(t *testing.T) {
	w := newWorld(t, service.IPv6, localport.Config{})
	check(w, localport.Probe(service.IPv6, w.node.Do))
	check(w, w.node.Sysctl("net.ipv6.conf.lo.disable_ipv6", "1"))
	if err := localport.Probe(service.IPv6, w.node.Do); !errors.Is(err, unix.EADDRNOTAVAIL) {
		w.Errorf("the probe says %v", err)
	}
	check(w, localport.Probe(service.IPv4, w.node.Do))
	change := w.want(w.listener(service.TCP, nodePort, netip.AddrPortFrom(w.own(), nodePort)))
	receipt := w.attempt(change)
	if receipt.Outcome != dataplane.Busy || len(receipt.Suspects) > 0 || !strings.Contains(receipt.Err.Error(), "loopback interface") {
		w.Errorf("got %v, suspects %v", receipt, receipt.Suspects)
	}
	check(w, w.node.Sysctl("net.ipv6.conf.lo.disable_ipv6", "0"))
	w.write(change)
}

// TestKernelWriter_RejectsUselessObjects: the writer rejects listeners of the other family and listeners that would
// forward to themselves.
func TestKernelWriter_RejectsUselessObjects(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{})
	foreign := w.listener(service.TCP, nodePort, netip.AddrPortFrom(w.own(), nodePort))
	foreign.ID.Name = "tcp/[::1]:30080"
	for _, o := range []*dataplane.Object{foreign, w.listener(service.TCP, nodePort, w.listen(nodePort))} {
		receipt := w.attempt(w.want(o))
		if receipt.Outcome != dataplane.Rejected || !slices.Equal(receipt.Suspects, []service.Key{w.owner}) {
			w.Errorf("%v: got %v, suspects %v", o, receipt, receipt.Suspects)
		}
	}
}

// TestKernelWriter_CloseIsFinal: Close ends all listeners, and a closed writer opens no more.
func TestKernelWriter_CloseIsFinal(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{})
	o := w.listener(service.TCP, nodePort, netip.AddrPortFrom(w.own(), nodePort))
	w.write(w.want(o))
	check(t, w.writer.Close())
	w.expectRefused("tcp", nodePort)
	if left := w.read(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if receipt := w.attempt(w.want(o)); receipt.Outcome != dataplane.Busy || receipt.Err == nil {
		t.Errorf("got %v from a closed writer", receipt)
	}
	w.expectRefused("tcp", nodePort)
	check(t, w.writer.Close())
}

// TestKernelWriter_DeadListenersReopened: Watch reports a dead listener, Read does not list it, and writing it again
// reopens it.
func TestKernelWriter_DeadListenersReopened(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		backend := w.backend("first", netip.AddrPortFrom(w.own(), nodePort))
		change := w.want(w.listener(service.TCP, nodePort, backend.Addr()))
		w.write(change)
		told := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(w.Context())
		watched := make(chan error)
		go func() { watched <- w.writer.Watch(ctx, func(dataplane.ForeignProcess) { told <- struct{}{} }) }()
		kill(w, w.listen(nodePort))
		select {
		case <-told:
		case <-time.After(patience):
			w.Fatal("nobody was told")
		}
		cancel()
		if err := <-watched; !errors.Is(err, context.Canceled) {
			w.Errorf("the watch ended with %v", err)
		}
		failures := w.takeFailures()
		if len(failures) != 1 || failures[0].Listener != change.ID.Name || !errors.Is(failures[0].Err, unix.EINVAL) {
			w.Errorf("reported: %+v", failures)
		}
		if left := w.read(); len(left) != 0 {
			w.Errorf("a dead listener is read: %v", left)
		}
		w.write(change)
		w.expectAnswer("tcp", nodePort, "first")
		check(w, backend.Close())
	})
}

// kill makes a listening TCP socket of this process useless.
func kill(w *world, at netip.AddrPort) {
	w.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	check(w, err)
	for _, d := range descriptors {
		var fd int
		if _, err := fmt.Sscan(d.Name(), &fd); err != nil || boundTo(fd) != at {
			continue
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 1 {
			check(w, syscall.Shutdown(fd, syscall.SHUT_RDWR))
			return
		}
	}
	w.Fatalf("nobody listens on %s", at)
}

// boundTo returns a socket's own address, zero for another file.
func boundTo(fd int) netip.AddrPort {
	own, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(own.Addr), uint16(own.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(own.Addr), uint16(own.Port))
	default:
		return netip.AddrPort{}
	}
}
