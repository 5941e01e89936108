package service

import (
	"slices"
	"testing"
)

func TestKeyText(t *testing.T) {
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

func TestKeyCompare(t *testing.T) {
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
