// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"testing"
)

// TestReporter_NodeOfLowestEndpoint: the reporter is the node of the lowest endpoint address that has a node,
// regardless of the order of the slices.
func TestReporter_NodeOfLowestEndpoint(t *testing.T) {
	at := func(addr, node string) SliceEndpoint {
		e := SliceEndpoint{Addr: netip.MustParseAddr(addr)}
		if node != "" {
			e.Location = &Location{NodeName: node}
		}
		return e
	}
	slice := func(endpoints ...SliceEndpoint) *Slice { return &Slice{Endpoints: endpoints} }
	for name, c := range map[string]struct {
		slices []*Slice
		want   string
	}{
		"no slices":          {nil, ""},
		"no endpoints":       {[]*Slice{slice()}, ""},
		"no node":            {[]*Slice{slice(at("10.0.0.1", ""))}, ""},
		"the lowest address": {[]*Slice{slice(at("10.0.0.9", "a"), at("10.0.0.10", "b")), slice(at("10.0.0.2", "c"))}, "c"},
		"the order of slices does not matter": {
			[]*Slice{slice(at("10.0.0.2", "c")), slice(at("10.0.0.9", "a"), at("10.0.0.10", "b"))}, "c"},
		"IPv4 before IPv6":       {[]*Slice{slice(at("fd00::1", "six")), slice(at("10.0.0.2", "four"))}, "four"},
		"only those with a node": {[]*Slice{slice(at("10.0.0.1", ""), at("10.0.0.2", "c"))}, "c"},
		"one address twice":      {[]*Slice{slice(at("10.0.0.1", "b"), at("10.0.0.1", "a"))}, "a"},
	} {
		if got := Reporter(c.slices); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
