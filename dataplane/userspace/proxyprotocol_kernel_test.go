// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// readHeader decodes a header of the PROXY protocol, version 2, as its section 2.2 describes it.
func readHeader(from io.Reader) (source, destination netip.AddrPort, err error) {
	head := make([]byte, 16)
	if _, err = io.ReadFull(from, head); err != nil {
		return source, destination, err
	}
	if string(head[:12]) != "\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a" || head[12]>>4 != 2 || head[12]&0xf != 1 {
		return source, destination, fmt.Errorf("no header of a connection: %q", head)
	}
	size := map[byte]int{0x11: 4, 0x21: 16}[head[13]]
	rest := make([]byte, binary.BigEndian.Uint16(head[14:]))
	if _, err = io.ReadFull(from, rest); err != nil {
		return source, destination, err
	}
	if size == 0 || len(rest) != 2*size+4 {
		return source, destination, fmt.Errorf("kind %#x with %d bytes", head[13], len(rest))
	}
	from1, _ := netip.AddrFromSlice(rest[:size])
	to, _ := netip.AddrFromSlice(rest[size : 2*size])
	ports := rest[2*size:]
	return netip.AddrPortFrom(from1, binary.BigEndian.Uint16(ports)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(ports[2:])), nil
}

// TestKernelProxyProtocol_BeforeFirstByte: with PROXY protocol, an endpoint gets the client's address before its first
// byte, even if the client waits for the server.
func TestKernelProxyProtocol_BeforeFirstByte(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		l, err := w.node.Listen("tcp", w.endpoint(0).String())
		check(w, err)
		defer l.Close() // the test ends
		set := func(lines ...string) {
			lines = append(append([]string{ofWeb}, lines...), w.to(0)...)
			w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.TCP, w.cluster(80), lines...)))
		}
		accept := func() net.Conn {
			conn, err := l.Accept()
			check(w, err)
			check(w, conn.SetDeadline(time.Now().Add(patience)))
			return conn
		}
		set("proxy-protocol v2")
		client := w.dial(w.cluster(80))
		server := accept()
		source, destination, err := readHeader(server)
		check(w, err)
		if want := client.LocalAddr().(*net.TCPAddr).AddrPort(); source != netip.AddrPortFrom(want.Addr().Unmap(), want.Port()) || destination != w.cluster(80) {
			w.Errorf("told of %v to %v, want %v to %v", source, destination, want, w.cluster(80))
		}
		sent := make([]byte, 5)
		_, err = client.Write([]byte("hello"))
		check(w, errors.Join(err, client.CloseWrite()))
		if _, err := io.ReadFull(server, sent); err != nil || string(sent) != "hello" {
			w.Errorf("got %q, %v", sent, err)
		}
		check(w, server.Close())
		w.eventually("the connection has ended", func() bool { return w.traffic().Open == 0 })
		if n := w.traffic().BytesIn; n != 5 {
			w.Errorf("%d bytes are counted, want those of the client", n)
		}
		set()
		client = w.dial(w.cluster(80))
		server = accept()
		_, err = client.Write([]byte("hello"))
		check(w, err)
		if _, err := io.ReadFull(server, sent); err != nil || string(sent) != "hello" {
			w.Errorf("without the annotation: got %q, %v", sent, err)
		}
		check(w, errors.Join(server.Close(), client.Close()))
	})
}

// TestKernelRegistry_Done: a watch is called for each connection that ends and for each refused client.
func TestKernelRegistry_Done(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			var mu sync.Mutex
			var all []userspace.Done
			registry := userspace.NewRegistry(userspace.Bounds{})
			w := newWorld(t, family, userspace.Config{Registry: registry})
			w.backend(0)
			w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.TCP, w.cluster(80), append([]string{ofWeb}, w.to(0)...)...)))
			w.names(w.client, "tcp", w.cluster(80), 3)
			w.eventually("they have ended", func() bool { return w.traffic().Open == 0 })
			registry.Watch(func(d *userspace.Done) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, *d)
			})
			w.names(w.client, "tcp", w.cluster(80), 4)
			count := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(all)
			}
			w.eventually("they have ended", func() bool { return count() == 4 })
			w.write(w.want(listenerOf(service.TCP, w.cluster(80), append([]string{ofWeb}, w.to(1)...)...)))
			w.expectReset(w.cluster(80))
			w.eventually("it was refused", func() bool { return count() == 5 })
			refused := all[4]
			all = all[:4]
			if refused.Connection != nil || refused.Refused != relay.Unreachable || refused.Port.Service != webKey ||
				refused.Client.Addr() != addresses[w.family].client || refused.Client.Port() == 0 || refused.At != w.cluster(80) {
				w.Errorf("told %+v", refused)
			}
			registry.Watch(nil)
			w.write(w.want(listenerOf(service.TCP, w.cluster(80), append([]string{ofWeb}, w.to(0)...)...)))
			w.names(w.client, "tcp", w.cluster(80), 1)
			w.eventually("it has ended", func() bool { return w.traffic().Open == 0 })
			if count() != 4 {
				w.Fatalf("%d calls, want 4", count())
			}
			for _, d := range all {
				if d.Port.Service != webKey || d.Client.Addr() != addresses[w.family].client || d.Client != d.Connection.Client ||
					d.Target != w.endpoint(0) || d.At != w.cluster(80) || d.ToClients.Load() == 0 {
					w.Errorf("told %+v", d)
				}
			}
		})
	}
}
