// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// TestCleanup_Nothing: a cleanup of empty tables writes nothing.
func TestCleanup_Nothing(t *testing.T) {
	tool := &scriptedTool{}
	summary, err := Cleanup(t.Context(), service.IPv4, tool, DefaultOwnership(), false)
	if err != nil || summary.Hooks != 0 || len(summary.Chains) != 0 {
		t.Errorf("%+v, %v", summary, err)
	}
	if len(tool.inputs) != 0 {
		t.Errorf("wrote %q", tool.inputs)
	}
}

// TestCleanup_GoesOnAfterFailure: a cleanup continues after a failure, and returns all errors.
func TestCleanup_GoesOnAfterFailure(t *testing.T) {
	hook := hookIn(t, render.NAT, "OUTPUT")
	busy := errors.New("the lock is held")
	unread := errors.New("no save today")
	removal := "remove nat OUTPUT " + strings.Join(hook.Rule, "|")
	tool := &scriptedTool{
		saves: map[render.Table]string{
			render.NAT: savedTable(render.NAT, ":OUTPUT ACCEPT [0:0]", ":KUBE-SERVICES - [0:0]", ":KUBE-MARK-MASQ - [0:0]",
				"-A OUTPUT "+hook.Text(), "-A KUBE-SERVICES -j KUBE-MARK-MASQ"),
			render.Mangle: savedTable(render.Mangle, ":KUBE-PROXY-CANARY - [0:0]", ":KUBE-IPTABLES-HINT - [0:0]"),
		},
		fail: map[string]error{"restore with deletions": busy, removal: busy, "save filter": unread},
	}
	summary, err := Cleanup(t.Context(), service.IPv4, tool, DefaultOwnership(), false)
	if !errors.Is(err, busy) || !errors.Is(err, unread) {
		t.Errorf("error %v, want both", err)
	}
	if strings.Contains(err.Error(), "foreign rule") {
		t.Errorf("our own hook is called foreign: %v", err)
	}
	// The single input is rejected. Then the chain that the hook leads to is emptied and stays.
	want := []string{
		"*mangle\n:KUBE-PROXY-CANARY - [0:0]\n-X KUBE-PROXY-CANARY\nCOMMIT\n",
		"*nat\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\n-D OUTPUT " + hook.Text() + "\n-X KUBE-MARK-MASQ\n-X KUBE-SERVICES\nCOMMIT\n",
		"*nat\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\n-X KUBE-MARK-MASQ\nCOMMIT\n",
	}
	if !slices.Equal(tool.inputs, want) {
		t.Errorf("inputs:\n%s\nwant:\n%s", strings.Join(tool.inputs, "\n"), strings.Join(want, "\n"))
	}
	if summary.Hooks != 0 || !maps.Equal(summary.Chains, map[render.Table]int{render.Mangle: 1, render.NAT: 1}) {
		t.Errorf("summary %+v", summary)
	}
}
