package kube

import "testing"

func TestGateOpensOnce(t *testing.T) {
	opened := 0
	g := newGate(func() { opened++ }, "a", "b")
	for _, resource := range []string{"a", "a", "other"} {
		g.listed(resource)
	}
	if opened != 0 {
		t.Fatal("opened before b was listed")
	}
	for _, resource := range []string{"b", "b", "a"} {
		g.listed(resource)
	}
	if opened != 1 {
		t.Errorf("opened %d times, want once", opened)
	}
}
