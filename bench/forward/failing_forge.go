package main

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// forgedPerSecond is the number of connections that forge begins.
const forgedPerSecond = 2000

// The flags of TCP that forged packets have.
const (
	flagSYN, flagRST = 2, 4
)

// forge sends first packets to the Service with random source addresses of a range, each followed by a reset if asked
// for. The pods do not see half of them: their resets arrive before an answer, as over a slow link.
func (s *stage) forge(sources netip.Prefix, reset bool) (func() error, error) {
	undrop, err := s.drop("ip saddr " + sources.String() + " numgen random mod 2 0")
	if err != nil {
		return undrop, err
	}
	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() { ended <- forging(s.client, sources, reset, &stop) }()
	return func() error {
		stop.Store(true)
		if err := <-ended; err != nil {
			return err
		}
		return undrop()
	}, nil
}

// forging sends until it is stopped.
func forging(client *netns.Namespace, sources netip.Prefix, reset bool, stop *atomic.Bool) error {
	return client.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd) //nolint:errcheck // nothing can be lost
		to := &unix.SockaddrInet4{Addr: serviceAt.Addr().As4()}
		began := time.Now()
		for n := 0; !stop.Load(); {
			if n >= int(time.Since(began)*forgedPerSecond/time.Second) {
				time.Sleep(time.Millisecond)
				continue
			}
			n++
			from := netip.AddrPortFrom(randomOf(sources), uint16(1024+rand.IntN(60000)))
			if err := unix.Sendto(fd, segment(from, serviceAt, flagSYN, 1), 0, to); err != nil {
				return err
			}
			if !reset {
				continue
			}
			if err := unix.Sendto(fd, segment(from, serviceAt, flagRST, 2), 0, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// randomOf returns an address of an IPv4 range.
func randomOf(sources netip.Prefix) netip.Addr {
	a := sources.Addr().As4()
	host := binary.BigEndian.Uint32(a[:]) + rand.Uint32N(1<<(32-sources.Bits()))
	binary.BigEndian.PutUint32(a[:], host)
	return netip.AddrFrom4(a)
}

// segment returns an IPv4 packet with a TCP header. The kernel fills in the checksum of IP.
func segment(from, to netip.AddrPort, flags byte, sequence uint32) []byte {
	const header = 20
	p := make([]byte, 2*header)
	p[0], p[8], p[9] = 4<<4|header/4, 64, unix.IPPROTO_TCP
	source, destination := from.Addr().As4(), to.Addr().As4()
	copy(p[12:], source[:])
	copy(p[16:], destination[:])
	t := p[header:]
	binary.BigEndian.PutUint16(t, from.Port())
	binary.BigEndian.PutUint16(t[2:], to.Port())
	binary.BigEndian.PutUint32(t[4:], sequence)
	t[12], t[13] = header/4<<4, flags
	binary.BigEndian.PutUint16(t[14:], 1<<15)
	sum := uint32(unix.IPPROTO_TCP + header)
	for i := 12; i < 2*header; i += 2 { // with the addresses, as the pseudo header has them
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(t[16:], ^uint16(sum))
	return p
}
