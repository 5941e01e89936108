// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// hookObject makes a hook.
func hookObject(table render.Table, chain, name string) *dataplane.Object {
	_, text, _ := strings.Cut(name, " ")
	return &dataplane.Object{ID: dataplane.ID{Container: string(table) + "/" + chain, Name: name}, Body: text}
}

func writeOnce(t *testing.T, tool Tool, changes ...dataplane.Change) dataplane.Receipt {
	t.Helper()
	return NewWriter(service.IPv4, tool, WriterConfig{}).Write(t.Context(), &dataplane.Batch{Number: 1, Changes: changes})
}

// TestWriter_OrdersHooksAroundRestore: a write inserts hooks after the chains that they jump to, and removes hooks
// before their chains.
func TestWriter_OrdersHooksAroundRestore(t *testing.T) {
	tool := &scriptedTool{}
	receipt := writeOnce(t, tool,
		changeOf(service.Node, nil, hookObject(render.NAT, "PREROUTING", `11 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)),
		changeOf(service.Node, nil, hookObject(render.Filter, "INPUT", "02 -j KUBE-NEW")),
		changeOf(service.Node, hookObject(render.Filter, "INPUT", "01 -j KUBE-OLD"), nil),
		unsure(changeOf(service.Node, hookObject(render.NAT, "OUTPUT", "10 -j KUBE-SERVICES"), hookObject(render.NAT, "OUTPUT", "10 -j KUBE-SERVICES"))),
		changeOf(service.Node, nil, chainObject(render.NAT, "KUBE-SERVICES", "-j RETURN")),
		changeOf(service.Node, chainObject(render.Filter, "KUBE-OLD"), nil),
	)
	if receipt.Outcome != dataplane.Landed || receipt.Err != nil || receipt.Certain != nil {
		t.Fatalf("receipt: %v, certain %v", receipt, receipt.Certain)
	}
	want := []string{
		"restore",
		"restore", // the hooks that are certain to be absent
		"ensure nat OUTPUT -j|KUBE-SERVICES",
		"remove filter INPUT -j|KUBE-OLD",
		"restore", // the chains that go
	}
	if !slices.Equal(tool.calls, want) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(tool.calls, "\n"), strings.Join(want, "\n"))
	}
	hooks := "*filter\n-I INPUT 1 -j KUBE-NEW\nCOMMIT\n" +
		"*nat\n-I PREROUTING 1 -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n"
	if got := string(tool.inputs[1]); got != hooks {
		t.Errorf("hooks were inserted by\n%swant\n%s", got, hooks)
	}
	wantWritten := dataplane.Written{Objects: 6, Lines: 3, Bytes: len(tool.inputs[0]) + len(hooks) + len(tool.inputs[2]), Calls: 5}
	if receipt.Written != wantWritten {
		t.Errorf("written %+v, want %+v", receipt.Written, wantWritten)
	}
}

// TestWriter_EmptyBatchCallsNothing: an empty batch calls no tool.
func TestWriter_EmptyBatchCallsNothing(t *testing.T) {
	tool := &scriptedTool{}
	if receipt := writeOnce(t, tool); receipt.Outcome != dataplane.Landed || len(tool.calls) != 0 {
		t.Errorf("receipt %v after %q", receipt, tool.calls)
	}
}

// TestWriter_ReportsWhatLanded: after a rejected restore, the receipt lists each object as the tools print it.
func TestWriter_ReportsWhatLanded(t *testing.T) {
	rejected := &ToolError{Outcome: dataplane.Rejected, Command: "iptables-restore", Line: 10, Err: errors.New("exit status 2")}
	tool := &scriptedTool{
		fail: map[string]error{"restore": rejected},
		saves: map[render.Table]string{
			render.Filter: savedTable(render.Filter, ":INPUT ACCEPT [0:0]", ":KUBE-SERVICES - [0:0]",
				"-A INPUT -j KUBE-SERVICES", "-A KUBE-SERVICES "+rejectGreen, "-A KUBE-SERVICES "+rejectBlue),
			render.NAT: savedTable(render.NAT, ":KUBE-SVC-G - [0:0]", "-A KUBE-SVC-G -j DNAT 1"),
		},
	}
	filterAfter := chainObject(render.Filter, "KUBE-SERVICES", rejectGreen)
	blueAfter, greenBefore := chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT 1", "-j DNAT x"), chainObject(render.NAT, "KUBE-SVC-G", "-j DNAT 1")
	there, absent := hookObject(render.Filter, "INPUT", "01 -j KUBE-SERVICES"), hookObject(render.NAT, "OUTPUT", "10 -j KUBE-SERVICES")
	receipt := writeOnce(t, tool,
		changeOf(service.Node, chainObject(render.Filter, "KUBE-SERVICES", rejectBlue), filterAfter),
		changeOf(blue, nil, blueAfter),
		changeOf(green, greenBefore, nil),
		changeOf(service.Node, nil, there),
		changeOf(service.Node, nil, absent),
	)
	if receipt.Outcome != dataplane.Rejected || !errors.Is(receipt.Err, rejected) {
		t.Fatalf("receipt: %v", receipt)
	}
	if want := []service.Key{blue}; !slices.Equal(receipt.Suspects, want) {
		t.Errorf("suspects %v, want %v; input:\n%s", receipt.Suspects, want, tool.inputs[0])
	}
	if len(receipt.Certain) != 5 {
		t.Errorf("certain of %d objects, want 5: %v", len(receipt.Certain), receipt.Certain)
	}
	// Filter has grown: it holds neither the old rules nor the wanted ones.
	if now := receipt.Certain[filterAfter.ID]; now == nil || now.Body != rejectGreen+"\n"+rejectBlue {
		t.Errorf("the grown chain is reported as %+v", now)
	}
	if now, ok := receipt.Certain[blueAfter.ID]; now != nil || !ok {
		t.Errorf("the chain that did not land is reported as %+v, %v", now, ok)
	}
	if receipt.Certain[greenBefore.ID] != greenBefore {
		t.Error("the chain that still exists is not reported as before")
	}
	if now := receipt.Certain[there.ID]; !dataplane.Same(now, there) {
		t.Errorf("the existing hook is reported as %+v", now)
	}
	if now, ok := receipt.Certain[absent.ID]; now != nil || !ok {
		t.Errorf("the missing hook is reported as %+v, %v", now, ok)
	}
}

// TestWriter_UnreadableWriteIsUnknown: if a failed write cannot be read back, its outcome is unknown, and the receipt
// contains both errors.
func TestWriter_UnreadableWriteIsUnknown(t *testing.T) {
	rejected := &ToolError{Outcome: dataplane.Rejected, Line: 3, Err: errors.New("exit status 2")}
	unread := errors.New("no save today")
	tool := &scriptedTool{fail: map[string]error{"restore": rejected, "save nat": unread}}
	receipt := writeOnce(t, tool, changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-B", "-j DNAT")))
	if receipt.Outcome != dataplane.Unknown || len(receipt.Certain) != 0 {
		t.Errorf("receipt: %v, certain of %v", receipt, receipt.Certain)
	}
	if !errors.Is(receipt.Err, rejected) || !errors.Is(receipt.Err, unread) {
		t.Errorf("error %v, want both", receipt.Err)
	}
}

// TestWriter_StopsAtFirstFailure: a write makes no further calls after the first failure, except to read back.
func TestWriter_StopsAtFirstFailure(t *testing.T) {
	busy := &ToolError{Outcome: dataplane.Busy, Line: 2, Err: errors.New("exit status 4")}
	leaving := changeOf(service.Node, hookObject(render.Filter, "INPUT", "01 -j KUBE-OLD"), nil)
	gone := changeOf(blue, chainObject(render.Filter, "KUBE-OLD", "-j DROP"), nil)
	coming := unsure(changeOf(service.Node, nil, hookObject(render.Filter, "INPUT", "02 -j KUBE-NEW")))
	for failing, calls := range map[string]int{
		"ensure filter INPUT -j|KUBE-NEW": 2,
		"remove filter INPUT -j|KUBE-OLD": 3,
		"restore":                         4,
	} {
		tool := &scriptedTool{fail: map[string]error{failing: busy}}
		receipt := writeOnce(t, tool, leaving, gone, coming)
		// The last call is the one that reads back.
		if receipt.Outcome != dataplane.Busy || len(tool.calls) != calls || tool.calls[calls-2] != failing {
			t.Errorf("%s failed: %v after %q", failing, receipt, tool.calls)
		}
		if receipt.Suspects != nil {
			t.Errorf("%s failed: %v are suspects although the lock was held", failing, receipt.Suspects)
		}
		if len(receipt.Certain) != 3 {
			t.Errorf("%s failed: certain of %v", failing, receipt.Certain)
		}
	}
}

// TestWriter_HooksOfAnotherRelease: a rule in a built-in chain that is not one of our hooks remains as long as its
// target chain, and is removed right before it. Otherwise the kernel rejects the deletion of the chain, and with it the
// whole batch.
func TestWriter_HooksOfAnotherRelease(t *testing.T) {
	old := ":KUBE-SVC-OLD - [0:0]"
	rule := `-m comment --comment "the old way in" -j KUBE-SVC-OLD`
	tool := &scriptedTool{saves: map[render.Table]string{
		render.Mangle: savedTable(render.Mangle), render.Filter: savedTable(render.Filter),
		render.NAT: savedTable(render.NAT, ":PREROUTING ACCEPT [0:0]", old, ":KUBE-SVC-KEPT - [0:0]",
			"-A PREROUTING "+rule, "-A PREROUTING -j KUBE-SVC-KEPT", "-A KUBE-SVC-OLD -j RETURN"),
	}}
	w := NewWriter(service.IPv4, tool, WriterConfig{})
	if _, err := w.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	tool.calls = nil
	hook := hookIn(t, render.NAT, "PREROUTING").Object()
	receipt := w.Write(t.Context(), &dataplane.Batch{Number: 1, Changes: []dataplane.Change{
		changeOf(service.Node, nil, &hook),
		changeOf(service.Node, nil, chainObject(render.NAT, "KUBE-SERVICES", "-j RETURN")),
		changeOf(service.Node, chainObject(render.NAT, "KUBE-SVC-OLD", "-j RETURN"), nil),
	}})
	want := []string{
		"restore", "restore", "remove nat PREROUTING -m|comment|--comment|the old way in|-j|KUBE-SVC-OLD", "restore",
	}
	if receipt.Outcome != dataplane.Landed || !slices.Equal(tool.calls, want) {
		t.Errorf("%v: calls:\n%s\nwant:\n%s", receipt, strings.Join(tool.calls, "\n"), strings.Join(want, "\n"))
	}
	if last := string(tool.inputs[2]); !strings.Contains(last, "-X KUBE-SVC-OLD") || strings.Contains(string(tool.inputs[0]), "KUBE-SVC-OLD") {
		t.Errorf("the chain is removed by\n%s", last)
	}
}

// TestWriter_RejectsForeignIdentities: a write rejects identities that are neither chains nor hooks of our tables.
func TestWriter_RejectsForeignIdentities(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: "raw", Name: "KUBE-X"},
		{Container: "raw/PREROUTING", Name: "01 -j A"},
		{Container: "nat/OUTPUT", Name: "-j A"},
		{Container: "nat/OUTPUT", Name: "01"},
	} {
		tool := &scriptedTool{}
		receipt := writeOnce(t, tool, dataplane.Change{ID: id})
		if receipt.Outcome != dataplane.Rejected || len(tool.calls) != 0 {
			t.Errorf("%v: %v after %q", id, receipt, tool.calls)
		}
	}
}

// TestWriter_HonoursContextWhileToolInUse: while the tool is in use, Write and Read return when their context ends.
func TestWriter_HonoursContextWhileToolInUse(t *testing.T) {
	w := NewWriter(service.IPv4, &scriptedTool{}, WriterConfig{})
	if err := w.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	receipt := w.Write(ctx, &dataplane.Batch{Changes: []dataplane.Change{changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-B"))}})
	if receipt.Outcome != dataplane.Unknown || !errors.Is(receipt.Err, context.Canceled) {
		t.Errorf("receipt: %v", receipt)
	}
	if _, err := w.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
}

// TestWriter_ReadReturnsOurs: Read returns our chains and hooks, each once, and no foreign objects.
func TestWriter_ReadReturnsOurs(t *testing.T) {
	hook := hookIn(t, render.NAT, "OUTPUT")
	tool := &scriptedTool{saves: map[render.Table]string{
		render.Mangle: savedTable(render.Mangle, ":KUBE-IPTABLES-HINT - [0:0]", ":KUBE-PROXY-CANARY - [0:0]"),
		render.Filter: savedTable(render.Filter, ":INPUT ACCEPT [5:6]", ":DOCKER - [0:0]", ":KUBE-FIREWALL - [0:0]", ":KUBE-FORWARD - [0:0]",
			"-A INPUT -j DOCKER", "-A INPUT -j KUBE-FORWARD", "-A KUBE-FIREWALL -j DROP"),
		render.NAT: savedTable(render.NAT, ":OUTPUT ACCEPT [0:0]", ":KUBE-SERVICES - [0:0]", ":KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]",
			"-A OUTPUT "+hook.Text(), "-A OUTPUT "+hook.Text(), "-A KUBE-SERVICES -j KUBE-SVC-NPX46M4PTMTKRN6Y"),
	}}
	objects, err := NewWriter(service.IPv4, tool, WriterConfig{}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []dataplane.Object{
		*chainObject(render.Filter, "KUBE-FIREWALL", "-j DROP"),
		*chainObject(render.Filter, "KUBE-FORWARD"),
		*chainObject(render.Mangle, "KUBE-PROXY-CANARY"),
		*chainObject(render.NAT, "KUBE-SERVICES", "-j KUBE-SVC-NPX46M4PTMTKRN6Y"),
		*chainObject(render.NAT, "KUBE-SVC-NPX46M4PTMTKRN6Y"),
		hook.Object(), // two copies are one hook
	}
	if !slices.EqualFunc(objects, want, func(a, b dataplane.Object) bool { return a.ID == b.ID && a.Body == b.Body }) {
		t.Errorf("read %+v\nwant %+v", objects, want)
	}
}

// TestWriter_ReadFailsWhole: if one table cannot be read, Read returns no objects and an error that names the family.
func TestWriter_ReadFailsWhole(t *testing.T) {
	unread := errors.New("no save today")
	tool := &scriptedTool{fail: map[string]error{"save nat": unread}}
	objects, err := NewWriter(service.IPv6, tool, WriterConfig{}).Read(t.Context())
	if !errors.Is(err, unread) || !strings.Contains(err.Error(), "IPv6") || objects != nil {
		t.Errorf("read %v, %v", objects, err)
	}
}

// hookIn returns one of our hooks in a built-in chain.
func hookIn(t *testing.T, table render.Table, chain string) render.Hook {
	t.Helper()
	for _, h := range render.HookRows() {
		if h.Table == table && h.Chain == chain {
			return h
		}
	}
	t.Fatalf("no hook of ours in %s of table %s", chain, table)
	return render.Hook{}
}

// TestWriter_SharedChain: the writer writes our rules to the chain that it shares with the kubelet, creates the chain
// if it is absent, and never empties or removes it.
func TestWriter_SharedChain(t *testing.T) {
	full, empty := chainObject(render.Filter, render.ChainFirewall, "-j DROP"), chainObject(render.Filter, render.ChainFirewall)
	there := savedTable(render.Filter, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -j RETURN")
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
		tool := &scriptedTool{saves: map[render.Table]string{render.Filter: tt.saved}}
		receipt := writeOnce(t, tool, tt.change)
		if got := strings.Join(tool.inputs, "\n"); receipt.Outcome != dataplane.Landed || got != tt.want {
			t.Errorf("%s: %v after %q, want %q", tt.name, receipt, got, tt.want)
		}
		if objects := len(tool.inputs); receipt.Written.Objects != objects {
			t.Errorf("%s: counted %d objects, want %d", tt.name, receipt.Written.Objects, objects)
		}
	}
}

// TestWriter_NeverRemovesSharedHooks: the writer never removes the hook of the shared chain.
func TestWriter_NeverRemovesSharedHooks(t *testing.T) {
	tool := &scriptedTool{}
	hook := hookObject(render.Filter, "INPUT", "13 -j KUBE-FIREWALL")
	if receipt := writeOnce(t, tool, changeOf(service.Node, hook, nil)); receipt.Outcome != dataplane.Landed || len(tool.calls) != 0 {
		t.Errorf("%v after %q", receipt, tool.calls)
	}
}

// TestWriter_ReadsSharedChainAsWanted: if we only need the shared chain to exist, Read ignores the kubelet's rules in
// it. Otherwise each audit would find a difference.
func TestWriter_ReadsSharedChainAsWanted(t *testing.T) {
	full, empty := chainObject(render.Filter, render.ChainFirewall, "-j DROP"), chainObject(render.Filter, render.ChainFirewall)
	tool := &scriptedTool{saves: map[render.Table]string{render.Filter: savedTable(render.Filter, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -j RETURN")}}
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

// TestWriter_FailureCertainOfSharedChain: the receipt of a failed write lists the shared chain as wanted if it exists.
func TestWriter_FailureCertainOfSharedChain(t *testing.T) {
	empty := chainObject(render.Filter, render.ChainFirewall)
	tool := &scriptedTool{
		saves: map[render.Table]string{render.Filter: savedTable(render.Filter, ":KUBE-FIREWALL - [0:0]", "-A KUBE-FIREWALL -j RETURN")},
		fail:  map[string]error{"restore": &ToolError{Outcome: dataplane.Rejected}},
	}
	receipt := writeOnce(t, tool, changeOf(service.Node, nil, empty), changeOf(blue, nil, chainObject(render.NAT, "KUBE-SVC-B")))
	if receipt.Certain[empty.ID] != empty {
		t.Errorf("the shared chain is reported as %+v, though it exists as wanted", receipt.Certain[empty.ID])
	}
}
