package main

import (
	"net/netip"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	one := sample{connectMedian: time.Millisecond, bytes: 2e9, attempted: 10, lost: 1}
	two := sample{connectMedian: 3 * time.Millisecond, bytes: 4e9, attempted: 10, lost: 2}
	rows := table(map[string][]sample{"nftables": {one, two, two}, "userspace": {one}}).Rows
	if got := rows[0]; got[1] != "3ms" || got[2] != "1ms" {
		t.Errorf("median %v", got)
	}
	if got := rows[len(rows)-2]; got[1] != "5" || got[2] != "1" {
		t.Errorf("sum %v", got)
	}
}

// TestCount: connections before and after the window do not count, nor do those of the spared address.
func TestCount(t *testing.T) {
	from, a, b := time.Unix(1000, 0), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	at := func(s int) time.Time { return from.Add(time.Duration(s) * time.Second) }
	l := &connections{all: []connection{
		{a, at(-1), patience, ""}, {a, at(0), time.Millisecond, "x"}, {a, at(1), time.Second, "x"}, {a, at(2), time.Millisecond, ""},
		{b, at(3), patience, ""}, {a, at(4), 2 * time.Millisecond, "y"}, {a, at(15), patience, ""},
	}}
	got, lasted := l.count(from, at(15), b)
	if want := (counts{Attempted: 4, Failed: 1, Late: 1, Slowest: time.Second}); got != want || lasted != 2*time.Second {
		t.Errorf("%+v for %v, want %+v for 2s", got, lasted, want)
	}
}

// TestSegmentsChecksum: the sum over a segment and its pseudo header is all ones.
func TestSegmentsChecksum(t *testing.T) {
	p := segment(netip.MustParseAddrPort("10.200.1.2:1234"), serviceAt, flagSYN, 7)
	sum := uint32(6 + 20)
	for i := 12; i < len(p); i += 2 {
		sum += uint32(p[i])<<8 | uint32(p[i+1])
	}
	if sum = sum>>16 + sum&0xffff; sum != 0xffff {
		t.Errorf("%#x", sum)
	}
}
