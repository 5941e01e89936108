// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"strings"
	"testing"
)

// TestFrontends_StringListsFew: the text of many frontends lists the first ones and counts the others.
func TestFrontends_StringListsFew(t *testing.T) {
	var fs Frontends
	for i := range 5000 {
		fs = append(fs, Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: uint16(1 + i)})
	}
	got := fs.String()
	if !strings.HasPrefix(got, "192.0.2.1:1/tcp, 192.0.2.1:2/tcp, ") || !strings.HasSuffix(got, ", 192.0.2.1:10/tcp and 4990 more") {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
	if got := fs[:frontendsMax].String(); strings.Contains(got, "more") || strings.Count(got, ",") != frontendsMax-1 {
		t.Error(got)
	}
}
