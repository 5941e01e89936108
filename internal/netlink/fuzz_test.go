// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzAnswer reads any bytes as the kernel's answer to a request: the parts of the answer are inside the message, and
// its error has a text.
func FuzzAnswer(f *testing.F) {
	request, mark := Begin(nil, 7, 0)
	request = Finish(AppendText(request, 1, "x"), mark)
	rejection := append([]byte{0xfe, 0xff, 0xff, 0xff}, request...)
	f.Add(uint16(0), rejection)
	f.Add(uint16(unix.NLM_F_ACK_TLVS), AppendHostUint32(AppendText(rejection, extendedText, "no such table"), extendedOffset, 20))
	f.Add(uint16(unix.NLM_F_CAPPED|unix.NLM_F_ACK_TLVS), AppendText(rejection[:4+HeaderBytes], extendedText, "\x1b[2J\n"))
	f.Fuzz(func(t *testing.T, flags uint16, payload []byte) {
		a, ok := ParseAnswer(Message{Kind: unix.NLMSG_ERROR, Flags: flags, Payload: payload})
		if !ok {
			return
		}
		if len(a.Request)+len(a.Text) > len(payload) || !bytes.Contains(payload, a.Request) {
			t.Errorf("an answer of %d bytes repeats %d and explains %d", len(payload), len(a.Request), len(a.Text))
		}
		if err := a.Err(); (err == nil) != (a.Errno == 0) || err != nil && err.Error() == "" {
			t.Errorf("number %d, error %v", a.Errno, err)
		}
	})
}

// FuzzAttributes writes attributes and reads them back.
func FuzzAttributes(f *testing.F) {
	f.Add(uint16(1), []byte("name\x00"), uint16(2), []byte{})
	f.Add(uint16(typeMask), bytes.Repeat([]byte{7}, 16), uint16(0), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, first uint16, one []byte, second uint16, other []byte) {
		if len(one)+len(other) > 0x7fff {
			return
		}
		first, second = first&typeMask, second&typeMask
		b, mark := Nest(nil, first)
		b = End(AppendBytes(AppendBytes(b, first, one), second, other), mark)
		var found []Attr
		for a := range Attrs(Find(b, first).Data) {
			found = append(found, a)
		}
		if len(found) != 2 || found[0].Type != first || found[1].Type != second ||
			!bytes.Equal(found[0].Data, one) || !bytes.Equal(found[1].Data, other) {
			t.Fatalf("%x becomes %+v", b, found)
		}
		checkNumbers(t, found[0])
	})
}

// checkNumbers requires that a number is not read from data of another size.
func checkNumbers(t *testing.T, a Attr) {
	t.Helper()
	for size, numbers := range map[int]uint64{
		1: uint64(a.Uint8()), 2: uint64(a.Uint16()), 4: uint64(a.Uint32()), 8: a.Uint64(),
	} {
		if len(a.Data) != size && numbers != 0 {
			t.Errorf("%d bytes give %d as a number of %d", len(a.Data), numbers, size)
		}
	}
	if a.Addr().IsValid() != (len(a.Data) == 4 || len(a.Data) == 16) {
		t.Errorf("%d bytes give the address %s", len(a.Data), a.Addr())
	}
}
