// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The Equal methods are written by hand, field by field. These tests change one
// thing at a time, found by reflection, so that a field which is added later and
// forgotten in Equal fails here.

func TestSpec_Equal(t *testing.T) {
	checkEqual(t, filled[Spec], (*Spec).Equal, []string{".Denied"}) // it follows from other specs
}

func TestSlice_Equal(t *testing.T) {
	// The times say when, not what.
	checkEqual(t, filled[Slice], (*Slice).Equal, []string{".Trigger", ".Received"})
}

func TestView_Equal(t *testing.T) {
	checkEqual(t, filled[View], (*View).Equal, nil)
}

// TestNodeFacts_Equal: a difference in any field makes node facts unequal.
func TestNodeFacts_Equal(t *testing.T) {
	checkEqual(t, filled[NodeFacts], (*NodeFacts).Equal, nil)
}

// TestEqual_Nil: nil equals only nil.
func TestEqual_Nil(t *testing.T) {
	if !(*Spec)(nil).Equal(nil) || (*Spec)(nil).Equal(&Spec{}) || (&Spec{}).Equal(nil) {
		t.Error("Spec: nil equals only nil")
	}
	if !(*Slice)(nil).Equal(nil) || (*Slice)(nil).Equal(&Slice{}) || (&Slice{}).Equal(nil) {
		t.Error("Slice: nil equals only nil")
	}
	if !(*View)(nil).Equal(nil) || (*View)(nil).Equal(&View{}) || (&View{}).Equal(nil) {
		t.Error("View: nil equals only nil")
	}
	if !(*NodeFacts)(nil).Equal(nil) || (*NodeFacts)(nil).Equal(&NodeFacts{}) || (&NodeFacts{}).Equal(nil) {
		t.Error("NodeFacts: nil equals only nil")
	}
}

// TestEqual_IgnoresTimeZones: specs with the same creation time in two time zones are equal.
func TestEqual_IgnoresTimeZones(t *testing.T) {
	moment := time.Unix(1000, 0)
	there := moment.In(time.FixedZone("there", 3600))
	if !(&Spec{Created: moment}).Equal(&Spec{Created: there}) {
		t.Error("Spec")
	}
}

// filled returns a value without a zero in it.
func filled[T any]() *T {
	value := new(T)
	fill(reflect.ValueOf(value).Elem())
	return value
}

func fill(v reflect.Value) {
	walk(v, "", func(_ string, leaf reflect.Value) {
		change(leaf)
	})
}

// checkEqual compares a filled value with copies that differ in one place.
func checkEqual[T any](t *testing.T, build func() *T, equal func(a, b *T) bool, ignored []string) {
	t.Helper()
	if !equal(build(), build()) {
		t.Fatal("equal values are told apart")
	}
	var paths []string
	walk(reflect.ValueOf(build()).Elem(), "", func(path string, _ reflect.Value) {
		paths = append(paths, path)
	})
	if len(paths) < 5 {
		t.Fatalf("only %v to change", paths)
	}
	for _, target := range paths {
		other := build()
		walk(reflect.ValueOf(other).Elem(), "", func(path string, leaf reflect.Value) {
			if path == target {
				change(leaf)
			}
		})
		want := false
		for _, path := range ignored {
			want = want || strings.HasPrefix(target, path)
		}
		if equal(build(), other) != want || equal(other, build()) != want {
			t.Errorf("a difference in %s: Equal is %v, want %v", target, !want, want)
		}
	}
}

// walk visits every place at which two values can differ: scalars, addresses,
// times, and the length of each list.
func walk(v reflect.Value, path string, visit func(path string, leaf reflect.Value)) {
	switch v.Interface().(type) {
	case netip.Addr, netip.Prefix, netip.AddrPort, time.Time:
		visit(path, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Slice:
		visit(path+".len", v)
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		walk(v.Elem(), path, visit)
	default:
		visit(path, v)
	}
}

// change makes a place different from what it was; lists grow by one.
func change(v reflect.Value) {
	switch old := v.Interface().(type) {
	case netip.Addr:
		if old.IsValid() {
			v.Set(reflect.ValueOf(old.Next()))
		} else {
			v.Set(reflect.ValueOf(netip.MustParseAddr("10.0.0.1")))
		}
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), old.Bits()+9)))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), old.Port()+1)))
		return
	case time.Duration:
		v.Set(reflect.ValueOf(old + 1))
		return
	case time.Time:
		v.Set(reflect.ValueOf(old.Add(time.Second)))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		panic("a kind of field that this test does not know: " + v.Kind().String())
	}
}
