// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"
)

func TestWarning_String(t *testing.T) {
	w := Warning{Object: "Service ns1/svc1", Field: "spec.externalIPs[1]", Problem: "skipped"}
	if got, want := w.String(), "Service ns1/svc1: spec.externalIPs[1]: skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRevision_Order(t *testing.T) {
	sorted := []Revision{{}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := a.Compare(b), min(max(i-j, -1), 1); got != want {
				t.Errorf("%s.Compare(%s) = %d, want %d", a, b, got, want)
			}
		}
		if next := a.Next(); next.Compare(a) <= 0 || next.Incarnation != a.Incarnation {
			t.Errorf("%s is followed by %s", a, next)
		}
	}
}

func TestRevision_String(t *testing.T) {
	if got := (Revision{3, 14}).String(); got != "3.14" {
		t.Errorf("got %s", got)
	}
}
