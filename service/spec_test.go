// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestKey_Text(t *testing.T) {
	key := Key{Namespace: "ns1", Name: "svc1"}
	tests := []struct{ got, want string }{
		{key.String(), "ns1/svc1"},
		{Node.String(), "node"},
		{key.PortString("p80"), "ns1/svc1:p80"},
		{key.PortString(""), "ns1/svc1"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestKey_Compare(t *testing.T) {
	sorted := []Key{Node, {"a", "b"}, {"a", "c"}, {"ab", "a"}, {"b", "a"}}
	for i, a := range sorted {
		for j, b := range sorted {
			want := min(max(i-j, -1), 1)
			if got := a.Compare(b); got != want {
				t.Errorf("%v.Compare(%v) = %d, want %d", a, b, got, want)
			}
		}
	}
	if !slices.IsSortedFunc(sorted, Key.Compare) {
		t.Error("not sorted")
	}
}

func TestProtocol(t *testing.T) {
	tests := []struct {
		protocol Protocol
		text     string
		number   uint8
	}{{TCP, "tcp", 6}, {UDP, "udp", 17}, {SCTP, "sctp", 132}}
	for _, tt := range tests {
		if tt.protocol.String() != tt.text || tt.protocol.Number() != tt.number {
			t.Errorf("got %s %d, want %s %d", tt.protocol, tt.protocol.Number(), tt.text, tt.number)
		}
	}
}

// TestResolve_Scheduling: the view contains the scheduling of the spec, and views with other scheduling are unequal.
func TestResolve_Scheduling(t *testing.T) {
	wish := Scheduling{Scheduler: "sh", Fallback: true}
	spec := &Spec{
		ClusterIPs: PerFamily[netip.Addr]{netip.MustParseAddr("10.96.0.1")}, Ports: []Port{{Port: 80}}, Scheduling: wish,
	}
	with := Resolve(Key{}, spec, nil, &NodeFacts{})
	if with.Scheduling != wish {
		t.Errorf("got %+v, want %+v", with.Scheduling, wish)
	}
	plain := *spec
	plain.Scheduling = Scheduling{}
	if without := Resolve(Key{}, &plain, nil, &NodeFacts{}); with.Equal(&without) {
		t.Error("another scheduler makes no other view")
	}
}

// TestResolve_ProxyProtocol: the view contains the PROXY protocol, flow log and drain settings of the spec.
func TestResolve_ProxyProtocol(t *testing.T) {
	plain := Spec{ClusterIPs: PerFamily[netip.Addr]{netip.MustParseAddr("10.96.0.1")}, Ports: []Port{{Port: 80}}}
	asking := plain
	asking.ProxyProtocol, asking.FlowLog, asking.Drain = true, true, Drain{true, time.Second}
	with, without := Resolve(Key{}, &asking, nil, &NodeFacts{}), Resolve(Key{}, &plain, nil, &NodeFacts{})
	if !with.ProxyProtocol || without.ProxyProtocol || !with.FlowLog || without.FlowLog || with.Drain.Or(0) != time.Second || without.Drain.Or(2) != 2 || with.Equal(&without) || plain.Equal(&asking) {
		t.Errorf("got %t and %t", with.ProxyProtocol, without.ProxyProtocol)
	}
}
