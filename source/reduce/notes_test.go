package reduce

import "testing"

func TestNotes(t *testing.T) {
	n := notes{kind: "Service", namespace: "ns1", name: "svc1"}
	n.add(at("spec.externalIPs", 1), "%q is not an IP address; the entry is skipped", "bad")
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
