// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// boundUDP lists the UDP sockets of the calling thread's network namespace. It reads /proc:
// sock_diag needs a module for UDP, and there are few sockets.
func boundUDP() (all []socket, err error) {
	for _, name := range []string{"udp", "udp6"} {
		table, err := os.Open("/proc/thread-self/net/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the host does not have this family
		} else if err != nil {
			return nil, err
		}
		all = append(all, parseTable(table)...)
		_ = table.Close() // opened for reading, nothing can be lost
	}
	return all, nil
}

// parseTable reads a table of /proc/net, whose lines are "sl local remote st tx:rx tr:when
// retransmits uid timeout inode …", with addresses in hexadecimal.
func parseTable(table io.Reader) (all []socket) {
	const local, inodeAt = 1, 9
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inodeAt {
			continue
		}
		at, err := parseAddress(fields[local])
		inode, inodeErr := strconv.ParseUint(fields[inodeAt], 10, 32)
		if err == nil && inodeErr == nil {
			all = append(all, socket{At: at, Inode: uint32(inode)})
		}
	}
	return all
}

var errNotAnAddress = errors.New("no address")

// parseAddress reads "0100007F:7580": words in the host's byte order, and a port.
func parseAddress(text string) (netip.AddrPort, error) {
	words, digits, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, errNotAnAddress
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	port, err := strconv.ParseUint(digits, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, errNotAnAddress
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}
