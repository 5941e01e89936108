package iptables

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func TestWriteOfTheSharedChain(t *testing.T) {
	full, empty := chainObject(Filter, chainFirewall, "-j DROP"), chainObject(Filter, chainFirewall)
	there := savedTable(Filter, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -j RETURN")
	for _, tt := range []struct {
		name   string
		change dataplane.Change
		saved  string
		want   string // input, "" for none
	}{
		{"a rule of ours is written as ever", changeOf(service.Node, empty, full), there, "*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -j DROP\nCOMMIT\n"},
		{"never removed", changeOf(service.Node, full, nil), there, ""},
		{"never removed, unsure", unsure(changeOf(service.Node, full, nil)), there, ""},
		{"never emptied", changeOf(service.Node, full, empty), there, ""},
		{"never emptied, unsure", unsure(changeOf(service.Node, full, empty)), there, ""},
		{"thought absent, but the kubelet was faster", changeOf(service.Node, nil, empty), there, ""},
		{"made where it is absent", changeOf(service.Node, nil, empty), "", "*filter\n:KUBE-FIREWALL - [0:0]\nCOMMIT\n"},
		{"made where it is absent, unsure", unsure(changeOf(service.Node, full, empty)), "", "*filter\n:KUBE-FIREWALL - [0:0]\nCOMMIT\n"},
	} {
		tool := &scriptedTool{saves: map[Table]string{Filter: tt.saved}}
		receipt := writeOnce(t, tool, tt.change)
		if got := strings.Join(tool.inputs, "\n"); receipt.Outcome != dataplane.Landed || got != tt.want {
			t.Errorf("%s: %v after %q, want %q", tt.name, receipt, got, tt.want)
		}
		if objects := len(tool.inputs); receipt.Written.Objects != objects {
			t.Errorf("%s: counted %d objects, want %d", tt.name, receipt.Written.Objects, objects)
		}
	}
}

func TestSharedHooksAreNeverRemoved(t *testing.T) {
	tool := &scriptedTool{}
	hook := hookObject(Filter, "INPUT", "13 -j KUBE-FIREWALL")
	if receipt := writeOnce(t, tool, changeOf(service.Node, hook, nil)); receipt.Outcome != dataplane.Landed || len(tool.calls) != 0 {
		t.Errorf("%v after %q", receipt, tool.calls)
	}
}

// The kubelet's rules in a chain that only has to exist must not look like
// drift to every audit.
func TestReadOfTheSharedChainIsWhatIsWanted(t *testing.T) {
	full, empty := chainObject(Filter, chainFirewall, "-j DROP"), chainObject(Filter, chainFirewall)
	tool := &scriptedTool{saves: map[Table]string{Filter: savedTable(Filter, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -j RETURN")}}
	w := NewWriter(service.IPv4, tool, WriterConfig{})
	expect := func(when, want string) {
		t.Helper()
		objects, err := w.Read(t.Context())
		if err != nil || len(objects) != 1 || objects[0].Body != want {
			t.Errorf("%s: read %+v, %v; want body %q", when, objects, err, want)
		}
	}
	expect("before anything is wanted", "-j RETURN")
	w.Write(t.Context(), &dataplane.Batch{Changes: []dataplane.Change{changeOf(service.Node, full, empty)}})
	expect("wanted without rules of ours", "")
	w.Write(t.Context(), &dataplane.Batch{Changes: []dataplane.Change{changeOf(service.Node, empty, full)}})
	expect("wanted with a rule of ours", "-j RETURN")
}

func TestFailedWriteIsCertainOfTheSharedChain(t *testing.T) {
	empty := chainObject(Filter, chainFirewall)
	tool := &scriptedTool{
		saves: map[Table]string{Filter: savedTable(Filter, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -j RETURN")},
		fail:  map[string]error{"restore": &ToolError{Outcome: dataplane.Rejected}},
	}
	receipt := writeOnce(t, tool, changeOf(service.Node, nil, empty), changeOf(blue, nil, chainObject(NAT, "KUBE-SVC-B")))
	if receipt.Certain[empty.ID] != empty {
		t.Errorf("the shared chain is reported as %+v, though it exists as wanted", receipt.Certain[empty.ID])
	}
}
