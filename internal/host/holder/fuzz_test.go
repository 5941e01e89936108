// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzPlain: Plain turns the name of any process into one line of limited length.
func FuzzPlain(f *testing.F) {
	f.Add("kube-proxy --config=/var/lib/kube-proxy/config.conf")
	f.Add("\x1b[2J\n\r\x00\xff\u202e")
	f.Add(strings.Repeat("ä", commandMax))
	f.Fuzz(func(t *testing.T, text string) {
		plain := Plain(text)
		if len(plain) > commandMax+len("…") || !utf8.ValidString(plain) {
			t.Errorf("%d bytes: %q", len(plain), plain)
		}
		if again := Plain(plain); len(plain) <= commandMax && again != plain {
			t.Errorf("%q becomes %q", plain, again)
		}
		for _, r := range plain {
			if r < ' ' || r == 0x7f || r == '\u202e' {
				t.Errorf("%q in %q", r, plain)
			}
		}
	})
}

// FuzzSockets reads any bytes as the kernel's tables of sockets. Accepted sockets have an address.
func FuzzSockets(f *testing.F) {
	f.Add([]byte("  sl  local_address rem_address   st\n   0: 0100007F:7580 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4711 2\n"))
	f.Add([]byte("0: 00000000000000000000000001000000:0035 x x x x x x x 18446744073709551616"))
	f.Add(append([]byte{10, 10, 0, 0, 0x27, 0x10}, make([]byte, diagAnswer)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		found := parseTable(strings.NewReader(string(data)))
		if len(found) > len(data)/len("0 0:0 0 0 0 0 0 0 0 0") {
			t.Errorf("%d sockets in %d bytes", len(found), len(data))
		}
		if len(data) >= diagAnswer {
			found = append(found, parseDiag(data))
		}
		for _, socket := range found {
			if !socket.At.Addr().IsValid() {
				t.Errorf("accepted %+v", socket)
			}
		}
	})
}
