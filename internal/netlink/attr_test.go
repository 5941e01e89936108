// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"bytes"
	"slices"
	"testing"
)

// TestAttrs_RoundTrip: attributes of all types are read back as they were written.
func TestAttrs_RoundTrip(t *testing.T) {
	b := AppendText(nil, 1, "kube-proxy")
	b, mark := Nest(b, 2)
	b = AppendUint32(b, 1, 0xdeadbeef)
	b = AppendBytes(b, 7, []byte{1, 2, 3, 4, 5})
	b = End(b, mark)
	b = AppendString(b, 3, "")
	b = AppendUint64(b, 4, 1<<40)
	b = AppendUint8(b, 5, 7)
	b = AppendUint16(b, 6, 443)
	b = AppendHostUint16(b, 7, 8080)
	b = AppendHostUint32(b, 8, 1<<20)
	if len(b)%4 != 0 {
		t.Errorf("%d bytes are not aligned", len(b))
	}
	if got := Find(b, 1).Text(); got != "kube-proxy" {
		t.Errorf("text %q", got)
	}
	nested := Find(b, 2).Data
	if got := Find(nested, 1).Uint32(); got != 0xdeadbeef {
		t.Errorf("number %#x", got)
	}
	if got := Find(nested, 7).Data; !bytes.Equal(got, []byte{1, 2, 3, 4, 5}) {
		t.Errorf("bytes %v", got)
	}
	for name, n := range map[string][2]uint64{
		"8 bits":              {uint64(Find(b, 5).Uint8()), 7},
		"16 bits":             {uint64(Find(b, 6).Uint16()), 443},
		"32 bits of the host": {uint64(Find(b, 8).HostUint32()), 1 << 20},
		"64 bits":             {Find(b, 4).Uint64(), 1 << 40},
		"32 bits from 8":      {uint64(Find(b, 5).HostUint32()), 0},
		"16 bits from 8":      {uint64(Find(b, 5).Uint16()), 0},
		"8 bits from 16":      {uint64(Find(b, 6).Uint8()), 0},
		"64 bits from 32":     {Find(b, 8).Uint64(), 0},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", name, n[0], n[1])
		}
	}
	if got := Find(b, 9).Data; got != nil {
		t.Errorf("an attribute that is not there: %v", got)
	}
	if got := Find(b, 1).Uint32(); got != 0 {
		t.Errorf("a text as a number: %d", got)
	}
	var kinds []uint16
	for a := range Attrs(b) {
		kinds = append(kinds, a.Type)
	}
	if !slices.Equal(kinds, []uint16{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("attributes %v", kinds)
	}
}

// FuzzMessages reads any bytes as messages and attributes: reading ends, and stays inside the bytes.
func FuzzMessages(f *testing.F) {
	b, mark := Nest(AppendText(nil, 1, "text"), 2)
	f.Add(End(AppendUint32(b, 1, 7), mark))
	f.Add([]byte{4, 0, 1, 0, 3, 0, 1, 0})
	f.Add([]byte{255, 255, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		for a := range Attrs(b) {
			total += attrHeader + len(a.Data)
			for inner := range Attrs(a.Data) {
				_ = inner.Text()
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes of attributes in %d", total, len(b))
		}
		count := 0
		for m := range Messages(b) {
			count++
			_, _ = m.Netfilter(m.Kind >> 8)
			_ = ending(m, false)
		}
		if count*HeaderBytes > len(b) {
			t.Errorf("%d messages in %d bytes", count, len(b))
		}
	})
}
