package ipvs

import (
	"fmt"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/service"
)

// Bounds of hash sets. The memory follows what a set holds.
const (
	// usualEntries is kube-proxy's bound, which finds sets of another one unusable:
	// nobody could go back to it (ipset(8) with -exist wants the same bound).
	usualEntries = 1 << 16
	// mostEntries is that of a set for which the usual one does not suffice.
	mostEntries = 1 << 20
)

// setFamilies are the families of the addresses in sets.
var setFamilies = service.PerFamily[ipset.Family]{ipset.Inet, ipset.Inet6}

// newSet says how to make a set of addresses of a family, or of ports.
func newSet(family service.Family, name string, kind ipset.Type) ipset.Spec {
	if kind == ipset.BitmapPort {
		return ipset.Spec{Name: name, Type: kind}
	}
	return ipset.Spec{Name: name, Type: kind, Family: setFamilies[family], MaxElem: usualEntries}
}

// SetID is the identity of a set by its kernel name.
func SetID(name string) dataplane.ID { return dataplane.ID{Container: ContainerSet, Name: name} }

// SetObject is a set as an object of the domain. Its body is type and family; how
// many entries fit makes no set different from another.
func SetObject(s ipset.Spec) dataplane.Object {
	return dataplane.Object{ID: SetID(s.Name), Kind: dataplane.Owned, Body: s.String()}
}

// ParseSet tells how to make the set that an object stands for.
func ParseSet(o *dataplane.Object) (ipset.Spec, error) {
	kind, familyText, _ := strings.Cut(o.Body, " ")
	family := service.IPv4
	if familyText == ipset.Inet6.String() {
		family = service.IPv6
	}
	s := newSet(family, o.ID.Name, ipset.Type(kind))
	if o.ID.Container != ContainerSet || !s.Type.Known() || s.String() != o.Body {
		return ipset.Spec{}, fmt.Errorf("object %q in %q: %q is not a type of set and a family", o.ID.Name, o.ID.Container, o.Body)
	}
	return s, nil
}

// EntryObject is an entry of a set, whose kernel name is given, as an object of the
// domain. It is named as ipset(8) prints it.
func EntryObject(set string, e ipset.Entry) dataplane.Object {
	return placeOf(set).object(e)
}

// object is an entry of the set.
func (p setPlace) object(e ipset.Entry) dataplane.Object {
	return dataplane.Object{
		ID:   dataplane.ID{Container: p.container, Name: e.String()},
		Kind: dataplane.Element,
		Refs: p.refs,
	}
}

// EntrySet gives the kernel name of the set whose entry an identity stands for;
// false for other objects. With the type of that set, ipset.ParseEntry reads the
// name.
func EntrySet(id dataplane.ID) (set string, ok bool) {
	return strings.CutPrefix(id.Container, entriesPrefix)
}
