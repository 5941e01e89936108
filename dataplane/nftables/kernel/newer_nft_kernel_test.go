// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// foreignTables are the tables of scenario S-BES-08, made by a release of nft.
func foreignTables(t *testing.T, release string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "test", "scenarios", "network", "others", "nft-releases.each-nft"))
	check(t, err)
	_, all, _ := strings.Cut(strings.ReplaceAll(string(text), "{release}", release), "\n"+tableInet)
	return strings.Split(all, tableInet)
}

// tableInet begins each table.
const tableInet = "table inet "

// unlistable is a map that each release of nft writes, and none can list.
const unlistable = "table inet unlistable {\n map m { typeof jhash ip saddr mod 2 : ip daddr . tcp dport; }\n}\n"

// crashes fails the test unless a program ends by a signal.
func (w *world) crashes(what, program string, args ...string) {
	w.Helper()
	err := netnstest.Run(w.node, exec.Command(program, args...))
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != -1 {
		w.Errorf("%s: %s %v ends with %v, want a signal: it proves nothing", what, program, args, err)
	}
}

// TestNFT_CrashesOnEachForeignTable: nft 1.0.6 crashes on each of the foreign tables if a newer nft wrote it.
func TestNFT_CrashesOnEachForeignTable(t *testing.T) {
	testenv.OnlyInAll(t)
	newer := releases(t)["newer release"]
	version, err := exec.Command("nft", "--version").Output()
	check(t, err)
	if !strings.Contains(string(version), "v1.0.6") {
		return // newer ones read the tables
	}
	w := &world{TB: t, node: netnstest.New(t, "node")}
	tables := foreignTables(t, "newer")
	if len(tables) < 10 {
		t.Fatalf("%d tables: %q", len(tables), tables)
	}
	for _, table := range tables {
		w.quietly(newer, tableInet+table, "-f", "-")
		w.crashes(table, "nft", "list", "sets")
		w.quietly(newer, "", "flush", "ruleset")
	}
}

// TestKernelWriter_TablesOfOtherNFTs: the writer, which runs no nft, starts, writes, audits and starts again next to
// tables that two releases of nft wrote and that crash one of them. These tables do not change.
func TestKernelWriter_TablesOfOtherNFTs(t *testing.T) {
	testenv.OnlyInAll(t)
	newer := releases(t)["newer release"]
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, kernel.WriterConfig{})
			w.quietly("nft", unlistable, "-f", "-")
			w.crashes("the map", newer, "list", "ruleset")
			var names []string
			for _, by := range [][2]string{{"this", "nft"}, {"newer", newer}} { // after the newer one, nft cannot write
				tables := foreignTables(t, by[0])
				w.quietly(by[1], tableInet+strings.Join(tables, tableInet), "-f", "-")
				for _, table := range tables {
					names = append(names, strings.Fields(table)[0])
				}
			}
			before := w.listed(newer, names)
			w.serveVariety(writertest.NewFixture(family))
			if r := w.commit(); r.Outcome != dataplane.Landed {
				t.Fatalf("the first write: %+v", r)
			}
			if drift := w.audit(); drift.Any() {
				t.Errorf("an audit finds %+v", drift)
			}
			written := w.read()
			w.restart(kernel.WriterConfig{})
			compare(t, w.read(), written, "after a restart")
			if after := w.listed(newer, names); after != before {
				t.Errorf("the foreign tables are\n%s\nand were\n%s", after, before)
			}
		})
	}
}

// listed lists tables one by one.
func (w *world) listed(program string, tables []string) string {
	w.Helper()
	var all strings.Builder
	for _, name := range tables {
		all.WriteString(w.quietly(program, "", "list", "table", "inet", name))
	}
	return all.String()
}
