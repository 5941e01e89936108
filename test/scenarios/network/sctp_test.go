// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/hex"
	"testing"
)

func TestSCTP_Packets(t *testing.T) {
	for _, want := range []sctpPacket{
		{source: 40000, target: 80, initiate: 7},
		{source: 80, target: 40000, tag: 7, initiate: 9, cookie: "a 10.244.1.14:40000"},
		{source: 80, target: 40000, tag: 7, initiate: 9, cookie: "fits"},
	} {
		b := want.bytes()
		if got, ok := parseSCTP(b); !ok || got != want {
			t.Errorf("%x: got %+v, %v, want %+v", b, got, ok, want)
		}
		if len(b)%4 != 0 {
			t.Errorf("%x: %d bytes, want a multiple of 4", b, len(b))
		}
		for cut := range b {
			if got, ok := parseSCTP(b[:cut]); ok {
				t.Errorf("%d bytes of %x: got %+v, want nothing", cut, b, got)
			}
		}
		b[2] ^= 1
		if got, ok := parseSCTP(b); ok {
			t.Errorf("a changed port: got %+v, want nothing, for its checksum is wrong", got)
		}
	}
}

// TestSCTP_InitBytes: an INIT packet has the layout of RFC 9260, which no other code here checks.
func TestSCTP_InitBytes(t *testing.T) {
	b := sctpPacket{source: 0x1234, target: 80, initiate: 0x01020304}.bytes()
	const want = "1234" + "0050" + "00000000" /* checksum */ + "01" + "00" + "0014" + "01020304" + "00010000" + "0001" + "0001" + "00000001"
	if got := hex.EncodeToString(append(append([]byte(nil), b[:8]...), b[12:]...)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
