package reduce

import (
	"testing"
)

func TestNotes(t *testing.T) {
	n := notes{kind: "Service", namespace: "ns1", name: "svc1"}
	n.add(at("spec.externalIPs", 1), "the entry is skipped", "%q is not an IP address", "bad")
	want := `Service ns1/svc1: spec.externalIPs[1]: "bad" is not an IP address; the entry is skipped`
	if len(n.warnings) != 1 || n.warnings[0].String() != want {
		t.Errorf("got %v, want %q", n.warnings, want)
	}
}

func TestNotesOfObjectsWithoutNamespace(t *testing.T) {
	n := notes{kind: "Node", name: "n1"}
	if got := n.object(); got != "Node n1" {
		t.Errorf("got %q", got)
	}
}

func TestPathText(t *testing.T) {
	tests := []struct {
		path path
		want string
	}{
		{field("spec.clusterIP"), "spec.clusterIP"},
		{at("spec.externalIPs", 1), "spec.externalIPs[1]"},
		{at("spec.ports", 0).dot("nodePort"), "spec.ports[0].nodePort"},
		{at("endpoints", 12).dot("addresses[0]"), "endpoints[12].addresses[0]"},
	}
	for _, tt := range tests {
		if got := tt.path.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
