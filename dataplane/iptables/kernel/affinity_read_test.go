// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestSeenIn reads lists as kernels of two frequencies print them, an hour after their start.
func TestSeenIn(t *testing.T) {
	fast, slow := clock{time.Hour, time.Millisecond}, clock{time.Hour, 4 * time.Millisecond}
	for _, c := range []struct {
		name, line, client string
		now                clock
		age                time.Duration
		known, fails       bool
	}{
		// 2^32 - 300·1000 + 3590·1000, and the same with 250
		{"1000 Hz", "src=10.0.0.1 ttl: 64 last_seen: 4298257296 oldest_pkt: 1 4298257296", "10.0.0.1", fast, 10 * time.Second, true, false},
		{"250 Hz", "src=10.0.0.1 ttl: 64 last_seen: 4295789796 oldest_pkt: 1 4295789796", "10.0.0.1", slow, 10 * time.Second, true, false},
		{"another client", "src=10.0.0.1 ttl: 64 last_seen: 4298257296 oldest_pkt: 1 4298257296", "10.0.0.2", fast, 0, false, false},
		{
			"IPv6", "src=fd00:0000:0000:0000:0000:0000:0000:0001 ttl: 64 last_seen: 4298257296 oldest_pkt: 1 4298257296", "fd00::1",
			fast, 10 * time.Second, true, false,
		},
		{"no number", "src=10.0.0.1 ttl: 64 last_seen: soon oldest_pkt: 1 soon", "10.0.0.1", fast, 0, false, true},
		{"nothing", "", "10.0.0.1", fast, 0, false, false},
	} {
		age, known, err := seenIn(strings.NewReader(c.line+"\n"), netip.MustParseAddr(c.client), c.now)
		if known != c.known || (err != nil) != c.fails || age.Round(time.Second) != c.age {
			t.Errorf("%s: %v, %t, %v; want %v, %t, an error: %t", c.name, age, known, err, c.age, c.known, c.fails)
		}
	}
	if now, err := readClock(); err != nil || now.tick < time.Millisecond || now.tick > 10*time.Millisecond || now.uptime <= 0 {
		t.Errorf("this kernel's clock: %+v, %v", now, err)
	}
}
