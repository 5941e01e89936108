package service

import "testing"

func TestWarningText(t *testing.T) {
	w := Warning{Object: "Service ns1/svc1", Field: "spec.externalIPs[1]", Problem: "skipped"}
	if got, want := w.String(), "Service ns1/svc1: spec.externalIPs[1]: skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
