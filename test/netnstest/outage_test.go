// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"testing"
	"time"
)

// TestOutage_Covers: an outage covers the next exchange on a connection after its end, because a reset during the
// outage may show only then.
func TestOutage_Covers(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	all := func(string, Exchange) bool { return true }
	over := Outage[string]{Hits: all, From: at(100), To: at(200)}
	for _, c := range []struct {
		name     string
		outage   Outage[string]
		exchange Exchange
		want     bool
	}{
		{"before", over, Exchange{Began: at(80), Ended: at(90)}, false},
		{"it begins during the exchange", over, Exchange{Began: at(80), Ended: at(110)}, true},
		{"after", over, Exchange{Began: at(210), Ended: at(220)}, false},
		{"after, on a connection that was silent during its end", over, Exchange{Session: true, Silent: at(190), Began: at(210), Ended: at(211)}, true},
		{"after, on a connection with an exchange in between", over, Exchange{Session: true, Silent: at(205), Began: at(210), Ended: at(211)}, false},
		{"it lasts", Outage[string]{Hits: all, From: at(100)}, Exchange{Began: at(210), Ended: at(220)}, true},
		{"of another target", Outage[string]{Hits: func(string, Exchange) bool { return false }, From: at(100)}, Exchange{Began: at(110), Ended: at(120)}, false},
	} {
		if got := c.outage.Covers("target", c.exchange); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
