// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

func TestServerID(t *testing.T) {
	for name, want := range map[string]service.Frontend{
		"tcp 10.0.0.1:80":  {Addr: netip.MustParseAddr("10.0.0.1"), Port: 80},
		"udp [fd00::1]:53": {Addr: netip.MustParseAddr("fd00::1"), Port: 53, Protocol: service.UDP},
		"sctp 10.0.0.1:1":  {Addr: netip.MustParseAddr("10.0.0.1"), Port: 1, Protocol: service.SCTP},
	} {
		id := ServerID(want)
		if id != (dataplane.ID{Container: "server", Name: name}) {
			t.Errorf("%v: got %+v", want, id)
		}
		if got, err := ParseServerID(id); err != nil || got != want {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	for _, bad := range []dataplane.ID{
		{Container: "server"}, {Container: "server", Name: "10.0.0.1:80"}, {Container: "server", Name: "icmp 10.0.0.1:80"},
		{Container: "server", Name: "tcp 10.0.0.1"}, {Container: "address", Name: "tcp 10.0.0.1:80"},
	} {
		if got, err := ParseServerID(bad); err == nil {
			t.Errorf("%+v is taken for %v", bad, got)
		}
	}
}

func TestAddressID(t *testing.T) {
	for _, text := range []string{"10.0.0.1", "fd00::1"} {
		addr := netip.MustParseAddr(text)
		id := AddressID(addr)
		if got, err := ParseAddress(id); err != nil || got != addr || id.Name != text || id.Container != "address" {
			t.Errorf("%s: %+v, %v, %v", text, id, got, err)
		}
	}
	for _, bad := range []dataplane.ID{DeviceID, {Container: "address", Name: "x"}, {Container: "server", Name: "10.0.0.1"}} {
		if got, err := ParseAddress(bad); err == nil {
			t.Errorf("%+v is taken for %v", bad, got)
		}
	}
}

func TestSetObject(t *testing.T) {
	for _, c := range []struct {
		set  wire.SetSpec
		body string
	}{
		{wire.SetSpec{Name: "a", Type: wire.HashIPPort, Family: wire.Inet, MaxElem: entriesMax}, "hash:ip,port inet"},
		{wire.SetSpec{Name: "b", Type: wire.HashIPPortNet, Family: wire.Inet6, MaxElem: entriesMax}, "hash:ip,port,net inet6"},
		{wire.SetSpec{Name: "c", Type: wire.BitmapPort}, "bitmap:port"},
	} {
		o := SetObject(c.set)
		if o.Body != c.body || o.ID != (dataplane.ID{Container: "set", Name: c.set.Name}) || o.Kind != dataplane.Owned {
			t.Errorf("%+v: got %+v", c.set, o)
		}
		if got, err := ParseSet(&o); err != nil || got != c.set {
			t.Errorf("%q: got %+v, %v", c.body, got, err)
		}
	}
	for _, body := range []string{"", "hash:ip,port", "hash:mac inet", "bitmap:port inet", "hash:ip inet7", "hash:ip inet "} {
		if got, err := ParseSet(&dataplane.Object{ID: SetID("a"), Body: body}); err == nil {
			t.Errorf("%q is taken for %+v", body, got)
		}
	}
	if got, err := ParseSet(&dataplane.Object{ID: DeviceID, Body: "hash:ip inet"}); err == nil {
		t.Errorf("the device is taken for %+v", got)
	}
}

func TestEntryObjects(t *testing.T) {
	o := EntryObjects("KUBE-CLUSTER-IP", []wire.Entry{{Addr: netip.MustParseAddr("10.0.0.1"), Protocol: wire.TCP, Port: 80}})[0]
	if o.ID != (dataplane.ID{Container: "set/KUBE-CLUSTER-IP", Name: "10.0.0.1,tcp:80"}) || o.Kind != dataplane.Element ||
		len(o.Refs()) != 1 || o.Refs()[0] != SetID("KUBE-CLUSTER-IP") {
		t.Errorf("got %+v", o)
	}
	if set, ok := EntrySet(o.ID); !ok || set != "KUBE-CLUSTER-IP" {
		t.Errorf("got %q, %t", set, ok)
	}
	if set, ok := EntrySet(SetID("KUBE-CLUSTER-IP")); ok {
		t.Errorf("a set is taken for an entry of %q", set)
	}
}

// TestNaming_IgnoresNonEntries: Naming reports no frontend for names that are no entries.
func TestNaming_IgnoresNonEntries(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: entriesPrefix + SetName(service.IPv4, setClusterIP), Name: ""}, {Container: entriesPrefix + SetName(service.IPv4, setClusterIP), Name: "10.0.0.1"},
		{Container: entriesPrefix + SetName(service.IPv4, setClusterIP), Name: "10.0.0.1,80"}, {Container: entriesPrefix + SetName(service.IPv4, setClusterIP), Name: "10.0.0.1,tcp:x"},
		{Container: entriesPrefix + SetName(service.IPv4, setClusterIP), Name: "x,tcp:80"}, {Container: entriesPrefix + "ANOTHER", Name: "10.0.0.1,tcp:80"},
		{Container: ContainerSet, Name: "10.0.0.1,tcp:80"},
	} {
		if f, told := (Naming{}).Frontend(id); told {
			t.Errorf("%q is for %v", id, f)
		}
	}
}
