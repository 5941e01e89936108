// SPDX-License-Identifier: Apache-2.0

package depcheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// core are the folders that know no backend: they ask dataplane.Naming what an
// identity means. A name of a set or a chain there would go on to compile when the
// backend renames it, and two Services would share what must not mix.
var core = []string{"dataplane", "dataplane/ledger", "aggregator", "actors"}

// backends are the folders whose names the core may not use.
var backends = []string{"dataplane/iptables/render", "dataplane/nftables/render", "dataplane/ipvs/render"}

// naming matches the constants that hold such names.
var naming = regexp.MustCompile(`^([cC]hain|[sS]et|map|table|[cC]ontainer|entries|Device)`)

// TestBackendWords_NoneInCore: the core contains no name of a backend.
func TestBackendWords_NoneInCore(t *testing.T) {
	names := backendNames(t)
	files := 0
	for _, folder := range core {
		for path, file := range parse(t, folder) {
			files++
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range wordsOf(names, string(source), file) {
				t.Errorf("%s: %q is a name of a backend: ask dataplane.Naming instead", path, name)
			}
		}
	}
	if files < 20 {
		t.Errorf("only %d files of the core found: this proves little", files)
	}
}

// TestBackendWords_SearchFindsThem: the search finds names of backends that the core once contained.
func TestBackendWords_SearchFindsThem(t *testing.T) {
	names := backendNames(t)
	for code, want := range map[string]string{
		`const firewalled = "@firewalled"`:                     "firewalled",
		`var x = map[string]int{"nat/KUBE-SERVICES": 1}`:       "KUBE-SERVICES",
		`var x = []string{"@cluster-endpoints-a"}`:             "cluster-endpoints",
		`const serverContainer = "server"`:                     "server",
		`const setsContainer = "set/"`:                         "set",
		"// x stands for KUBE-LOOP-BACK.\nvar x int":           "LOOP-BACK",
		`var x = "a server in a set of services, as @someone"`: "",
	} {
		source := "package x\n\n" + code + "\n"
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", source, 0)
		if err != nil {
			t.Fatal(err)
		}
		found := wordsOf(names, source, file)
		if want == "" && len(found) > 0 || want != "" && !slices.Contains(found, want) {
			t.Errorf("%s: found %q, want %q", code, found, want)
		}
	}
}

// wordsOf returns the names that a file uses: those with a hyphen anywhere, and any as
// a literal of one word, with what goes before and after a name in a container.
func wordsOf(names []string, source string, file *ast.File) []string {
	var found []string
	for _, name := range names {
		if strings.Contains(name, "-") && strings.Contains(source, name) {
			found = append(found, name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil || strings.Contains(text, " ") {
			return true
		}
		for part := range strings.SplitSeq(strings.TrimPrefix(text, "@"), "/") {
			if slices.Contains(names, part) {
				found = append(found, part)
			}
		}
		return true
	})
	return found
}

// backendNames returns the names of tables, sets, chains and containers.
func backendNames(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, folder := range backends {
		for _, file := range parse(t, folder) {
			for _, declaration := range file.Decls {
				if d, ok := declaration.(*ast.GenDecl); ok && (d.Tok == token.CONST || d.Tok == token.VAR) {
					addNames(found, d)
				}
			}
		}
	}
	for _, sure := range []string{"KUBE-SERVICES", "frontends", "cluster-endpoints", "LOOP-BACK", "server"} {
		if !found[sure] {
			t.Fatalf("%q is not among the names of the backends, %q: the check would prove nothing",
				sure, slices.Sorted(maps.Keys(found)))
		}
	}
	found["KUBE-"] = true // the beginning of many
	return slices.Sorted(maps.Keys(found))
}

func addNames(found map[string]bool, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		values, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, value := range values.Values {
			if call, named := value.(*ast.CallExpr); named && len(call.Args) == 1 {
				value = call.Args[0] // set{…}.named("frontends")
			}
			literal, ok := value.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING || !naming.MatchString(values.Names[i].Name) {
				continue
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && !strings.HasSuffix(text, "-") && strings.Trim(text, "@/") != "" {
				found[text] = true
			}
		}
	}
}

// parse reads the files of a folder apart from its tests.
func parse(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = file
	}
	return files
}
