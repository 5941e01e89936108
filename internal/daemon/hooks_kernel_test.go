// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestHooks_FlushKeepsConnections: 60 busy connections continue while another process flushes all rules six times,
// faster than they are restored. In each mode with rules, the table that preserves connections exists while the process
// runs.
func TestHooks_FlushKeepsConnections(t *testing.T) {
	for _, mode := range testenv.Variants("nftables", "iptables") {
		t.Run(mode, func(t *testing.T) {
			if netnstest.Rerun(t) {
				return
			}
			const open = 60
			a := newAdaptive(t)
			a.describe("", len(a.servers))
			_, stop := serveTested(t, a.dir, "--proxy-mode", mode)
			testenv.Eventually(t, "an answer", func() bool { a.connect(t.Context(), 0, false); return len(a.to) > 0 })
			testenv.Eventually(t, "a table of each family", func() bool { return len(hookTables(t)) == 2 })
			var lines atomic.Int64
			hangUp := a.talkers(open, &lines)
			for range 6 {
				tool(t, "nft flush ruleset")
				before := lines.Load()
				testenv.Eventually(t, "more lines", func() bool { return lines.Load() > before+2*open })
			}
			if broken := hangUp(); len(broken) > 0 {
				t.Errorf("%d of %d open connections broke: %v", len(broken), open, broken)
			}
			if stop(); len(hookTables(t)) > 0 {
				t.Error("tables are left")
			}
		})
	}
}

// hookTables lists the tables of package hooks.
func hookTables(t *testing.T) (all []string) {
	t.Helper()
	for line := range strings.Lines(tool(t, "nft list tables")) {
		if strings.Contains(line, "sluice-hooks-") {
			all = append(all, line)
		}
	}
	return all
}
