// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

// dumped is an entry as a kernel lists it, for a datagram of 10.244.1.14 port 40001 to 172.30.0.41
// port 80, translated to 10.244.1.10 port 8080.
const dumped = `
34000180 14000180 08000100 0af4010e 08000200 ac1e0029
1c000280 05000100 11000000 06000200 9c410000 06000300 00500000
34000280 14000180 08000100 0af4010a 08000200 0af4010e
1c000280 05000100 11000000 06000200 1f900000 06000300 9c410000
08000c00 00000007
08000300 0000418e`

func TestParseEntry(t *testing.T) {
	b, err := hex.DecodeString(strings.Join(strings.Fields(dumped), ""))
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseEntry(b)
	want := Entry{
		ID: 7, Protocol: 17, Source: netip.MustParseAddrPort("10.244.1.14:40001"),
		Destination: netip.MustParseAddrPort("172.30.0.41:80"), Answerer: netip.MustParseAddrPort("10.244.1.10:8080"), Offloaded: true,
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}
