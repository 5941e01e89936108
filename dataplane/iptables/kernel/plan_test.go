// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// freshChain adds a chain of nat with the given number of rules that lead to other chains.
func freshChain(name string, rules int, refs ...string) dataplane.Change {
	o := &dataplane.Object{ID: dataplane.ID{Container: "nat", Name: name}, Body: strings.TrimSuffix(strings.Repeat("-j RETURN\n", rules), "\n")}
	for _, ref := range refs {
		o.Links = dataplane.LinkTo(append(o.Refs(), dataplane.ID{Container: "nat", Name: ref})...)
	}
	return dataplane.Change{ID: o.ID, After: o}
}

// TestStages_NewChainsFirstReferencesLast: stages write new chains first, and the chains that jump to them last.
func TestStages_NewChainsFirstReferencesLast(t *testing.T) {
	root := freshChain("KUBE-SERVICES", 1, "KUBE-SVC-A")
	root.Before = &dataplane.Object{ID: root.ID}
	gone := dataplane.Change{ID: dataplane.ID{Container: "nat", Name: "KUBE-SVC-OLD"}, Before: &dataplane.Object{}}
	rejected := freshChain("KUBE-SERVICES", 1)
	rejected.ID.Container = "filter"
	changes := []dataplane.Change{
		root, gone, rejected,
		freshChain("KUBE-EXT-A", 2, "KUBE-SVC-A"), freshChain("KUBE-SVC-A", 3, "KUBE-SEP-A"), freshChain("KUBE-SEP-A", 1),
		freshChain("KUBE-SVC-BIG", 50),
	}
	got := stages(changes, StageLimits{Rules: 4})
	var text []string
	for _, stage := range got {
		var names []string
		for _, c := range stage {
			names = append(names, c.ID.Name)
		}
		text = append(text, strings.Join(names, " "))
	}
	want := "[KUBE-SEP-A KUBE-SVC-A|KUBE-EXT-A|KUBE-SVC-BIG|KUBE-SERVICES KUBE-SVC-OLD KUBE-SERVICES]"
	if fmt.Sprintf("[%s]", strings.Join(text, "|")) != want {
		t.Fatalf("got %q, want %s", text, want)
	}
}

// TestStages_SmallOrUnboundedNotStaged: batches within the limits, or without limits, are one stage.
func TestStages_SmallOrUnboundedNotStaged(t *testing.T) {
	changes := []dataplane.Change{freshChain("KUBE-SVC-A", 3), freshChain("KUBE-SVC-B", 3)}
	for _, limits := range []StageLimits{{}, {Chains: 2}, {Rules: 6}} {
		if got := stages(changes, limits); len(got) != 1 || len(got[0]) != 2 {
			t.Errorf("%+v: %d stages", limits, len(got))
		}
	}
	if got := stages(changes, StageLimits{Chains: 1}); len(got) != 2 {
		t.Errorf("%d stages, want 2", len(got))
	}
}

// TestStages_UnsureChainsAreLast: a chain of unknown state, which may be reachable, is in the last stage.
func TestStages_UnsureChainsAreLast(t *testing.T) {
	unsure := freshChain("KUBE-SVC-A", 3)
	unsure.Unsure = true
	got := stages([]dataplane.Change{unsure, freshChain("KUBE-SVC-B", 3)}, StageLimits{Chains: 1})
	if len(got) != 2 || got[1][0].ID.Name != "KUBE-SVC-A" {
		t.Fatalf("got %v", got)
	}
}

// TestStages_ChainsLeadingToUnsureWait: a new chain that leads to a chain of unknown state is in the last stage as
// well. Otherwise the kernel rejected the control batch of a bisection each time after a flush.
func TestStages_ChainsLeadingToUnsureWait(t *testing.T) {
	unsure := freshChain("KUBE-MARK-MASQ", 1)
	unsure.Unsure = true
	got := stages([]dataplane.Change{
		freshChain("KUBE-EXT-A", 1, "KUBE-SVC-A"), freshChain("KUBE-SVC-A", 1, "KUBE-MARK-MASQ"), unsure, freshChain("KUBE-SVC-B", 1),
	}, StageLimits{Chains: 1})
	if len(got) != 2 || len(got[0]) != 1 || got[0][0].ID.Name != "KUBE-SVC-B" {
		t.Fatalf("got %v, want KUBE-SVC-B alone and the others behind it", got)
	}
}

// TestStages_LaterFailureBlamesItsStage: if a later stage fails, only its owners are suspects, and the receipt lists
// the earlier stage as written.
func TestStages_LaterFailureBlamesItsStage(t *testing.T) {
	bad := freshChain("KUBE-SVC-B", 2)
	bad.Owner = service2
	changes := []dataplane.Change{freshChain("KUBE-SVC-A", 2), bad}
	tool := &stagedTool{fail: 2}
	receipt := NewWriter(0, tool, WriterConfig{Stages: StageLimits{Chains: 1}}).Write(t.Context(), &dataplane.Batch{Number: 1, Changes: changes})
	if receipt.Outcome != dataplane.Rejected || len(receipt.Suspects) != 1 || receipt.Suspects[0] != service2 {
		t.Fatalf("%+v", receipt)
	}
	if a, certain := receipt.Certain[changes[0].ID]; !certain || a == nil {
		t.Fatalf("the first stage has landed, the receipt says %v (%v)", a, certain)
	}
	if b, certain := receipt.Certain[bad.ID]; !certain || b != nil {
		t.Fatalf("the second stage has not landed, the receipt says %v (%v)", b, certain)
	}
}

var service2 = service.Key{Namespace: "ns2", Name: "svc2"}

// stagedTool rejects one of its inputs, names the line after the table's, and has the first chain
// in the kernel.
type stagedTool struct {
	scriptedTool
	fail, restores int
}

func (s *stagedTool) Restore(context.Context, []byte) error {
	if s.restores++; s.restores == s.fail {
		return &ToolError{Outcome: dataplane.Rejected, Line: 2, Err: errors.New("exit status 1")}
	}
	return nil
}

func (s *stagedTool) Save(_ context.Context, table render.Table) ([]byte, error) {
	return []byte(savedTable(table, ":KUBE-SVC-A - [0:0]", "-A KUBE-SVC-A -j RETURN", "-A KUBE-SVC-A -j RETURN")), nil
}
