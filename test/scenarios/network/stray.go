// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stray sends TCP segments from an endpoint to a client. Their addresses and ports are right, but
// their sequence numbers are spread over the whole range, so that most are outside of any window.
func (n *Network) Stray(from, to netip.AddrPort) error {
	host := n.HostAt(from.Addr())
	if host == nil {
		return fmt.Errorf("no server at %v", from)
	}
	return host.Do(func() error {
		network := "ip4:tcp"
		if from.Addr().Is6() {
			network = "ip6:tcp"
		}
		raw, err := net.ListenIP(network, &net.IPAddr{IP: from.Addr().AsSlice()})
		if err != nil {
			return err
		}
		defer raw.Close() // a raw socket has nothing left to lose
		for i := range 16 {
			number := uint32(i) << 28
			if _, err := raw.WriteToIP(segment(from, to, number, number), &net.IPAddr{IP: to.Addr().AsSlice()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// segment is a TCP segment with one byte of data.
func segment(from, to netip.AddrPort, sequence, acknowledged uint32) []byte {
	const (
		headerWords = 5
		window      = 1000
		checksumAt  = 16
	)
	b := binary.BigEndian.AppendUint16(nil, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint32(b, sequence)
	b = binary.BigEndian.AppendUint32(b, acknowledged)
	b = append(b, headerWords<<4, 0x18) // PSH, ACK
	b = binary.BigEndian.AppendUint16(b, window)
	b = append(b, 0, 0, 0, 0, '?')
	pseudo := bytes.Join([][]byte{from.Addr().AsSlice(), to.Addr().AsSlice(), {0, unix.IPPROTO_TCP, 0, byte(len(b))}, b, {0}}, nil)
	binary.BigEndian.PutUint16(b[checksumAt:], checksum(pseudo))
	return b
}

// checksum returns the Internet checksum of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Resets counts the TCP resets that a host has sent, in both families.
func (n *Network) Resets(host string) (int, error) {
	h, err := n.Host(host)
	if err != nil {
		return 0, err
	}
	var text []byte
	if err := h.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}); err != nil {
		return 0, err
	}
	return parseResets(string(text))
}

// parseResets finds the count in the kernel's table, which has a line of names, then one of
// numbers.
func parseResets(text string) (int, error) {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "OutRsts" && i < len(words) {
				return strconv.Atoi(words[i])
			}
		}
	}
	return 0, fmt.Errorf("no count of resets in %q", text)
}
