// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
)

// TestKernelListeners_LoopDatagramsDropped: datagrams with the address of a listener or port 0 as their source are
// dropped. Otherwise one spoofed packet to an endpoint that answers everything would start an endless loop. The kernel
// drops such packets over IPv4 only.
func TestKernelListeners_LoopDatagramsDropped(t *testing.T) {
	w := newWorld(t, service.IPv6, userspace.Config{})
	w.answersEverything(w.endpoint(0))
	self, other := w.cluster(53), netip.AddrPortFrom(addresses[w.family].other, 53)
	w.write(w.want(addressOf(self.Addr())), w.want(addressOf(other.Addr())),
		w.want(listenerOf(service.UDP, self, append([]string{"of ns1/web dns"}, w.to(0)...)...)),
		w.want(listenerOf(service.UDP, other, append([]string{"of ns2/other dns"}, w.to(0)...)...)))
	client := netip.AddrPortFrom(addresses[w.family].client, 0)
	for i, from := range []netip.AddrPort{self, other, client} {
		w.sendFrom(from, self)
		w.eventually("the datagram arrives", func() bool {
			s := w.forwarder.Stats()
			return s.DatagramsDropped.Load() == uint64(i+1) || s.ToTargets.Load() > 0
		})
		time.Sleep(200 * time.Millisecond) // for what a loop needs to show
		if s := w.forwarder.Stats(); s.Sessions.Load() != 0 || s.ToTargets.Load() != 0 {
			w.Fatalf("a datagram from %v: %d sessions, %d bytes to endpoints in 0.2 s; want none", from, s.Sessions.Load(), s.ToTargets.Load())
		}
	}
	w.sendFrom(netip.AddrPortFrom(client.Addr(), 5353), self)
	w.eventually("a client's datagram is passed on", func() bool { return w.forwarder.Stats().Sessions.Load() == 1 })
}

// answersEverything sends each datagram back.
func (w *world) answersEverything(at netip.AddrPort) {
	w.Helper()
	socket, err := w.node.ListenPacket("udp", at.String())
	check(w, err)
	var running sync.WaitGroup
	running.Go(func() {
		buffer := make([]byte, 2048)
		for {
			size, from, err := socket.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = socket.WriteTo(buffer[:size], from)
			}
		}
	})
	w.Cleanup(func() { check(w, socket.Close()); running.Wait() })
}

// sendFrom sends a datagram over IPv6 from the client's host, with any source.
func (w *world) sendFrom(from, to netip.AddrPort) {
	w.Helper()
	const headerBytes = 40
	source, destination := from.Addr().As16(), to.Addr().As16()
	text := []byte("who is it?")
	udp := binary.BigEndian.AppendUint16(nil, from.Port())
	udp = binary.BigEndian.AppendUint16(udp, to.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(text)))
	udp = append(append(udp, 0, 0), text...)
	pseudo := append(append([]byte{}, source[:]...), destination[:]...)
	pseudo = append(binary.BigEndian.AppendUint32(pseudo, uint32(len(udp))), 0, 0, 0, unix.IPPROTO_UDP)
	binary.BigEndian.PutUint16(udp[6:], checksum(append(pseudo, udp...)))
	packet := make([]byte, headerBytes, headerBytes+len(udp))
	packet[0], packet[6], packet[7] = 6<<4, unix.IPPROTO_UDP, 64
	binary.BigEndian.PutUint16(packet[4:], uint16(len(udp)))
	copy(packet[8:], source[:])
	copy(packet[24:], destination[:])
	check(w, w.client.Do(func() error {
		raw, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		return errors.Join(unix.Sendto(raw, append(packet, udp...), 0, &unix.SockaddrInet6{Addr: destination}), unix.Close(raw))
	}))
}

// checksum is that of RFC 1071. The number of bytes is even.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
