package service

import (
	"net/netip"
	"testing"
)

func TestSchedulingReachesTheView(t *testing.T) {
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
