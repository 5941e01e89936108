package ipvs

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

func TestServerIDs(t *testing.T) {
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

func TestAddressIDs(t *testing.T) {
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

func TestSetObjects(t *testing.T) {
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
	o := EntryObject("KUBE-CLUSTER-IP", wire.Entry{Addr: netip.MustParseAddr("10.0.0.1"), Protocol: wire.TCP, Port: 80})
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

// TestEveryObjectThatIsRenderedIsKnown: each entry is in a set of kinds, and is of a frontend exactly where
// kinds says so. The entries of a set that is forgotten there would be taken for facts that Services share.
func TestEveryObjectThatIsRenderedIsKnown(t *testing.T) {
	for _, family := range service.Families {
		seen := map[string]bool{}
		for _, c := range renderCases {
			for _, o := range c.render(family) {
				set, entry := EntrySet(o.ID)
				f, told := Naming{}.Frontend(o.ID)
				switch {
				case entry:
					seen[set] = true
					of, known := ofFrontend[o.ID.Container]
					if !known || told != of {
						t.Errorf("%v: entry %q of %s is for %v: %v", family, o.ID.Name, set, f, told)
					}
					begins := strings.Count(o.ID.Name, ":") > 0 && strings.Contains(o.ID.Name, ",")
					if begins && !told && set != setName(family, setLoopBack) {
						t.Errorf("%v: entry %q of %s names a virtual server and is for none", family, o.ID.Name, set)
					}
					if want := f.Protocol.String() + ":" + strconv.Itoa(int(f.Port)); told && !strings.HasPrefix(o.ID.Name+",", f.Addr.String()+","+want+",") {
						t.Errorf("%v: entry %q of %s is for %v", family, o.ID.Name, set, f)
					}
				case o.ID.Container == ContainerServer:
					if !told || ServerID(f) != o.ID {
						t.Errorf("%v: the frontend of %q is %v, %v", family, o.ID.Name, f, told)
					}
				case told:
					t.Errorf("%v: %q is for %v", family, o.ID, f)
				}
			}
		}
		if len(seen) < len(kinds)-1 { // none has a UDP node port with local endpoints only
			t.Errorf("%v: entries of %d sets only: this proves little", family, len(seen))
		}
	}
}

func TestNamesThatAreNoEntriesAreOfNoFrontend(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: entriesPrefix + setName(service.IPv4, setClusterIP), Name: ""}, {Container: entriesPrefix + setName(service.IPv4, setClusterIP), Name: "10.0.0.1"},
		{Container: entriesPrefix + setName(service.IPv4, setClusterIP), Name: "10.0.0.1,80"}, {Container: entriesPrefix + setName(service.IPv4, setClusterIP), Name: "10.0.0.1,tcp:x"},
		{Container: entriesPrefix + setName(service.IPv4, setClusterIP), Name: "x,tcp:80"}, {Container: entriesPrefix + "ANOTHER", Name: "10.0.0.1,tcp:80"},
		{Container: ContainerSet, Name: "10.0.0.1,tcp:80"},
	} {
		if f, told := (Naming{}).Frontend(id); told {
			t.Errorf("%q is for %v", id, f)
		}
	}
}
