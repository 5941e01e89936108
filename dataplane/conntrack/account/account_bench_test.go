// SPDX-License-Identifier: Apache-2.0

package account

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// BenchmarkReading adds up 262,144 connections of 30,000 clients to 5,000 Services, as the second of two readings,
// without the kernel's part.
func BenchmarkReading(b *testing.B) {
	owners, table := map[netip.AddrPort]service.Key{}, make([]conntrack.Connection, rememberedMax)
	for i := range 5000 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80)
		owners[at] = service.Key{Namespace: "ns", Name: at.String()}
	}
	for i := range table {
		c := webFlow(uint32(i+1), "192.0.2.1", 1000)
		c.From = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i % 30_000 >> 8), byte(i % 30_000)}), uint16(i))
		c.To = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i % 5000 >> 8), byte(i % 5000)}), 80)
		table[i] = c
	}
	for _, continuous := range []bool{false, true} {
		b.Run(map[bool]string{false: "single", true: "continuous"}[continuous], func(b *testing.B) {
			a := newWebAccount(continuous)
			a.Service = func(_ service.Family, t conntrack.Tuple) (key service.Key, ok bool) {
				key, ok = owners[t.To]
				return key, ok
			}
			a.readAll(time.Now(), table...)
			for b.Loop() {
				a.readAll(time.Now(), table...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(table)), "ns/entry")
		})
	}
}

// TestAccount_MemoryWhenFull: an account that remembers the largest number of connections takes at most 40 MiB (about
// 32 MiB).
func TestAccount_MemoryWhenFull(t *testing.T) {
	testenv.OnlyInAll(t)
	a, table := newWebAccount(true), make([]conntrack.Connection, rememberedMax+10)
	for i := range table {
		table[i] = webFlow(uint32(i+1), "192.0.2.1", 1000)
	}
	kept := func() uint64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		return now.HeapAlloc
	}
	before := kept()
	a.readAll(time.Now(), table...)
	after := kept()
	t.Logf("%d KiB", (after-before)>>10)
	if after-before > 40<<20 || len(a.last) != rememberedMax {
		t.Errorf("%d KiB for %d connections", (after-before)>>10, len(a.last))
	}
	runtime.KeepAlive(table)
}
