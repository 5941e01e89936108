// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// TestEndToEnd_Reference compares the list of tests in test/e2e/README.md with the first sentences of their
// comments.
func TestEndToEnd_Reference(t *testing.T) {
	files, err := filepath.Glob("../test/e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
				continue
			}
			text := strings.TrimPrefix(strings.Join(strings.Fields(f.Doc.Text()), " "), f.Name.Name)
			if text = new(doc.Package).Synopsis(strings.TrimLeft(text, ": ")); text == "" {
				t.Errorf("%s: %s has no comment", path, f.Name.Name)
			}
			rows = append(rows, []string{"`" + f.Name.Name + "`", text})
		}
	}
	if len(rows) < 10 {
		t.Fatalf("%d tests: the search for them is broken", len(rows))
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	doctest.Generated(t, "../test/e2e/README.md", "tests", doctest.Table([]string{"Test", "Behavior"}, rows))
}
