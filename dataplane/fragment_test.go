// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"testing"
	"time"
	"unsafe"

	"github.com/sluice-proxy/sluice/service"
)

var key = service.Key{Namespace: "ns", Name: "a"}

func object(name, body string) Object {
	return Object{ID: ID{Container: "nat", Name: name}, Body: body}
}

// TestFragment_EqualContentEqualDigest: fragments with equal content have equal digests, in any order of their objects;
// different content has different digests.
func TestFragment_EqualContentEqualDigest(t *testing.T) {
	a := NewFragment(key, []Object{object("x", "1"), object("y", "2")})
	b := NewFragment(key, []Object{object("y", "2"), object("x", "1")})
	if a.Digest != b.Digest {
		t.Error("the order of rendering must not matter")
	}
	for name, other := range map[string]*Fragment{
		"another body":         NewFragment(key, []Object{object("x", "1"), object("y", "3")}),
		"another name":         NewFragment(key, []Object{object("x", "1"), object("z", "2")}),
		"text that moved":      NewFragment(key, []Object{object("x1", ""), object("y", "2")}),
		"an object less":       NewFragment(key, []Object{object("x", "1")}),
		"nothing, a tombstone": NewFragment(key, nil),
	} {
		if other.Digest == a.Digest {
			t.Errorf("%s: equal digest", name)
		}
	}
}

// TestFragment_FirstOfDuplicatesStays: NewFragment keeps the first of two objects with the same identity.
func TestFragment_FirstOfDuplicatesStays(t *testing.T) {
	f := NewFragment(service.Key{}, []Object{object("x", "first"), object("w", ""), object("x", "second")})
	if len(f.Objects) != 2 || f.Objects[1].Body != "first" {
		t.Fatalf("%+v", f.Objects)
	}
}

// TestSame: Same compares two objects by content and treats nil as equal to nil only.
func TestSame(t *testing.T) {
	a, b, c := object("x", "1"), object("x", "1"), object("x", "2")
	if !Same(&a, &b) || Same(&a, &c) || Same(&a, nil) || Same(nil, &a) || !Same(nil, nil) {
		t.Fatal("Same is wrong")
	}
}

// TestEarliest_IgnoresZeroTimes: Earliest returns the earlier of two times and ignores zero times.
func TestEarliest_IgnoresZeroTimes(t *testing.T) {
	var none time.Time
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ a, b, want time.Time }{
		{none, none, none}, {none, late, late}, {late, none, late}, {early, late, early}, {late, early, early},
	} {
		if got := Earliest(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("Earliest(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestObject_IsSmall: an object takes at most 64 bytes. Actors keep one per element, a million on a large node.
func TestObject_IsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Object{}); size > 64 {
		t.Errorf("%d bytes, want at most 64", size)
	}
}

// TestObject_WithoutLinks: an object without links has no references and no parts.
func TestObject_WithoutLinks(t *testing.T) {
	var o Object
	if o.Refs() != nil || o.Parts() != nil || LinkTo() != nil {
		t.Error("an object without links has references or parts")
	}
	if o.Links = LinkTo(ID{Name: "x"}); len(o.Refs()) != 1 || o.Parts() != nil {
		t.Errorf("links to x: %v, %v", o.Refs(), o.Parts())
	}
}
