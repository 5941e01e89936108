// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestModes_Complete: each mode has everything that a start, --init-only and the commands without a kernel call, and
// keeps its own rules only.
func TestModes_Complete(t *testing.T) {
	kept := map[backend.Keep]bool{}
	for _, m := range Modes() {
		if m.domains == nil || m.prepare == nil || m.Renderer == nil || (m.Text == nil) != (m.Unprintable != "") {
			t.Errorf("%s is not complete", m.Name)
		}
		if m.Forwards == (m.Traffic != nil) {
			t.Errorf("%s: the kernel counts traffic, and forwards none", m.Name)
		}
		if m.WithoutIPTables && len(m.Tools) == 0 {
			t.Errorf("%s: a support bundle has nothing of the kernel", m.Name)
		}
		if kept[m.Keep] || m.Keep == (backend.Keep{}) {
			t.Errorf("%s keeps %+v", m.Name, m.Keep)
		}
		kept[m.Keep] = true
		if known := ModeNamed(m.Name); known.Name != m.Name {
			t.Errorf("%s is %q by its name", m.Name, known.Name)
		}
	}
	if m := ModeNamed(config.ModeBest); m.Name != "" || m.Forwards || m.LacksHashing(0) || m.Features(t.Context(), nil) != nil {
		t.Errorf("a mode that is not known yet: %+v", m.Traits)
	}
}

// TestRestoresARP: ARP settings are restored for a mode and a configuration that do not need them.
func TestRestoresARP(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		words []string
		want  bool
	}{
		{NFTables, nil, true},
		{IPTables, nil, true},
		{IPVS, nil, true},
		{IPVS, []string{"--ipvs-strict-arp"}, false},
		{Userspace, nil, false},
		{Userspace, []string{testenv.Settings(t, "userspace: {answerARP: true}")}, true},
	} {
		if got := parsed(t, c.words...).restoresARP(c.mode); got != c.want {
			t.Errorf("%s %v: %t", c.mode.Name, c.words, got)
		}
	}
}

// TestModes_NamesNotCompared checks that the daemon and the commands ask a Mode instead of comparing its name. The
// configuration knows names only, and the demo compares the name of a domain.
func TestModes_NamesNotCompared(t *testing.T) {
	for _, root := range []string{filepath.Join("..", "..", "daemon"), filepath.Join("..", "..", "..", "cmd", "sluice")} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			skipped := slices.Contains([]string{"config", "setup", "demo"}, filepath.Base(filepath.Dir(path)))
			if err != nil || skipped || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			for _, name := range comparedModes(file) {
				t.Errorf("%s compares with %s: ask a setup.Mode instead", path, name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	const old = `package x
		func f() bool {
			switch { case m == config.ModeIPVS: return "iptables" != m }
			switch m { case "userspace": }
			return m == config.ModeBest
		}`
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", old, 0)
	if got := fmt.Sprint(comparedModes(file)); err != nil || got != `[config.ModeIPVS "iptables" "userspace"]` {
		t.Errorf("found %s, %v", got, err)
	}
}

// comparedModes returns the names of modes that a file compares with.
func comparedModes(file *ast.File) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		var sides []ast.Expr
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				sides = []ast.Expr{n.X, n.Y}
			}
		case *ast.CaseClause:
			sides = n.List
		}
		for _, side := range sides {
			text := types.ExprString(side)
			for _, m := range Modes() {
				if strings.EqualFold(text, "config.Mode"+string(m.Name)) || text == fmt.Sprintf("%q", m.Name) {
					found = append(found, text)
				}
			}
		}
		return true
	})
	return found
}
