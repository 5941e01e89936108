package ipset

import (
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

func TestRoom(t *testing.T) {
	for name, c := range map[string]struct {
		set      Set
		capacity uint32
		nearly   bool
	}{
		"below 80 %":          {Set{Spec: Spec{Type: HashIP, MaxElem: 10}, Count: 7}, 10, false},
		"at 80 %":             {Set{Spec: Spec{Type: HashIP, MaxElem: 10}, Count: 8}, 10, true},
		"a large one":         {Set{Spec: Spec{Type: HashIP, MaxElem: 1 << 31}, Count: 1 << 31}, 1 << 31, true},
		"a full bitmap":       {Set{Spec: Spec{Type: BitmapPort}, LastPort: 65535, Count: 65536}, 65536, false},
		"not known, so quiet": {Set{Spec: Spec{Type: "list:set"}, Count: 8}, 0, false},
	} {
		if c.set.Capacity() != c.capacity || c.set.NearlyFull() != c.nearly {
			t.Errorf("%s: %d, %t", name, c.set.Capacity(), c.set.NearlyFull())
		}
	}
}

func TestSpecsAsText(t *testing.T) {
	for want, s := range map[string]Spec{
		"hash:ip,port inet":      {Type: HashIPPort, Family: Inet},
		"hash:ip,port,net inet6": {Type: HashIPPortNet, Family: Inet6},
		"bitmap:port":            {Type: BitmapPort},
	} {
		if s.String() != want || !s.Type.Known() {
			t.Errorf("%+v: %s, %t", s, s, s.Type.Known())
		}
	}
	if Type("hash:net").Known() {
		t.Error("a type that nobody can read is known")
	}
}

// part is a message of a dump: a name, a header if it is the first of the set,
// and entries.
func part(name string, kind Type, entries ...Entry) []byte {
	b := wire.AppendText(nil, attrSetName, name)
	if kind != "" {
		b = appendByte(appendByte(wire.AppendText(b, attrTypeName, string(kind)), attrRevision, 1), attrFamily, uint8(Inet))
		var mark int
		b, mark = wire.Nest(b, attrData|nested)
		b = wire.AppendUint32(b, dataMaxElem|network, 100)
		b = wire.End(wire.AppendUint32(b, dataElements|network, 3), mark)
	}
	b, mark := wire.Nest(b, attrADT|nested)
	for _, e := range entries {
		var inner int
		b, inner = wire.Nest(b, attrData|nested)
		b = wire.End(e.append(b), inner)
	}
	return wire.End(b, mark)
}

// TestALargeSetIsPutTogether from several messages, and others are left out.
func TestALargeSetIsPutTogether(t *testing.T) {
	one, two, three := Entry{Addr: addr("10.0.0.1")}, Entry{Addr: addr("10.0.0.2")}, Entry{Addr: addr("10.0.0.3")}
	r := reader{wanted: func(name string) bool { return name != "other" }}
	for _, b := range [][]byte{
		part("A", HashIP, one, two), part("A", "", three), part("other", HashIP, one), part("other", "", two),
		part("B", HashIP, two), part("nets", "hash:net", one), part("mixed", HashIP, Entry{Port: 80}, one),
	} {
		r.read(b)
	}
	var names []string
	var entries [][]Entry
	for _, s := range r.sets {
		names, entries = append(names, s.Name), append(entries, s.Entries)
		if s.MaxElem != 100 || s.Count != 3 || s.Revision != 1 || s.Family != Inet {
			t.Errorf("header %+v", s)
		}
	}
	if !slices.Equal(names, []string{"A", "B", "nets", "mixed"}) {
		t.Fatalf("sets %v", names)
	}
	for i, want := range [][]Entry{{one, two, three}, {two}, nil, {one}} {
		if !slices.Equal(entries[i], want) {
			t.Errorf("%s: %v, want %v", names[i], entries[i], want)
		}
	}
}
