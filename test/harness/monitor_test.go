// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/ruleset"
)

// watch starts a monitor that ends with the test.
func watch(t *testing.T, h *Host) *Monitor {
	t.Helper()
	m, err := startMonitor(h, filepath.Join(t.TempDir(), "monitor.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestMonitor_ElementWrittenAgain: the monitor reports an element that was deleted and written again, although it looks
// the same as before.
func TestMonitor_ElementWrittenAgain(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	m := watch(t, host)
	if commits, err := m.Commits(generation(t, host)); err != nil || len(commits) > 0 {
		t.Fatalf("before anything was written: %v, %v", commits, err)
	}
	feed(t, host, "add table ip wares; add set ip wares ports { type inet_service; elements = { 9 } }", "nft", "-f", "-")
	since, before := generation(t, host), saveRules(t, host)
	feed(t, host, "delete element ip wares ports { 9 }; add element ip wares ports { 9 }", "nft", "-f", "-")
	feed(t, host, "", "iptables", "-A", "INPUT", "-j", "ACCEPT")
	feed(t, host, "", "iptables", "-D", "INPUT", "-j", "ACCEPT")
	if missing := ruleset.Missing(before, saveRules(t, host)); len(missing) > 0 {
		t.Errorf("the element looks different: %q", missing)
	}
	commits, err := m.Commits(since)
	if err != nil || len(commits) != 3 {
		t.Fatalf("%d commits, %v; want 3: %v", len(commits), err, commits)
	}
	again := commits[0]
	if again.Program != "nft" || again.Generation != since+1 || !slices.Equal(again.Tables(), []string{"ip wares"}) {
		t.Errorf("the element was written by %s in generation %d to %v, want nft, %d, ip wares", again.Program, again.Generation, again.Tables(), since+1)
	}
	if want := []string{"delete element ip wares ports 0009", "add element ip wares ports 0009"}; !slices.Equal(again.Changes, want) {
		t.Errorf("changes %q, want %q", again.Changes, want)
	}
	if want := []string{"add table ip filter", "add chain ip filter INPUT", "add rule ip filter INPUT"}; !slices.Equal(commits[1].Changes, want) {
		t.Errorf("changes %q, want %q", commits[1].Changes, want)
	}
	if tables := commits[1].Tables(); !strings.HasPrefix(commits[1].Program, "iptables") || !slices.Equal(tables, []string{"ip filter"}) {
		t.Errorf("the rule was written by %s to %v, want iptables, ip filter", commits[1].Program, tables)
	}
}

// TestMonitor_Ended: a failed monitor returns an error.
func TestMonitor_Ended(t *testing.T) {
	m := watch(t, &Host{Namespace: netnstest.New(t, "n")})
	m.socket.Close()
	m.ended.Wait()
	if commits, err := m.Commits(0); err == nil || !strings.Contains(err.Error(), "netns n") {
		t.Errorf("after the end: %v, %v", commits, err)
	}
}
