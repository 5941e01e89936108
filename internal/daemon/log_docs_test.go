// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/logging"
)

// notTheProxy are folders whose lines no proxy logs.
var notTheProxy = []string{"test", "bench", "hack", "examples", "internal/daemon/demo"}

// variable are messages that the code puts together, by the expression; docs/logs.md describes them.
var variable = map[string][]string{
	"c.Reason": {"mode not set; using iptables because the kernel lacks features required by nftables mode"},
}

// TestLogs_Documented: docs/logs.md describes every message at warn and error, and no other.
func TestLogs_Documented(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "logs.md"))
	check(t, err)
	var described []string
	for _, item := range regexp.MustCompile("(?m)^- (WARN|ERROR)[^`]* `([a-z-]+)`\\s+`([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		described = append(described, item[1]+" "+item[3])
		if id := logging.ID(item[3]); id != item[2] {
			t.Errorf("docs/logs.md: the ID of %q is %q, not %q", item[3], id, item[2])
		}
	}
	logged := loggedMessages(t, root)
	for _, message := range logged {
		_, said, _ := strings.Cut(message, " ")
		if logging.ID(said) == "" {
			t.Errorf("no ID for %q: add it to internal/daemon/logging/ids.go", said)
		}
		if !slices.ContainsFunc(described, func(d string) bool { return begins(message, d) }) {
			t.Errorf("docs/logs.md does not describe: %s", message)
		}
	}
	for _, d := range described {
		if !slices.ContainsFunc(logged, func(message string) bool { return begins(message, d) }) {
			t.Errorf("docs/logs.md describes what nothing logs: %s", d)
		}
	}
}

// begins reports whether a message is the one that is described, which may leave out what follows a
// colon, semicolon, comma or full stop, or is in parentheses at the end.
func begins(message, described string) bool {
	rest, ok := strings.CutPrefix(message, described)
	return ok && (rest == "" || strings.ContainsRune(":;,.", rune(rest[0])) || strings.HasPrefix(rest, " ("))
}

// loggedMessages returns the messages at warn and error in the source, with their levels, sorted.
func loggedMessages(t *testing.T, root string) (messages []string) {
	check(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		check(t, err)
		switch {
		case entry.IsDir() && (slices.Contains(notTheProxy, relative) || strings.HasPrefix(entry.Name(), ".") && relative != "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		check(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				all, err := loggedBy(call)
				if err != nil {
					t.Errorf("%s: %v", relative, err)
				}
				messages = append(messages, all...)
			}
			return true
		})
		return nil
	}))
	slices.Sort(messages)
	return slices.Compact(messages)
}

// loggedBy returns the levels and messages of a call that logs one at warn or error.
func loggedBy(call *ast.CallExpr) ([]string, error) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return nil, nil
	}
	level, said := "", call.Args[0]
	switch name := method.Sel.Name; {
	case name == "repeated":
		level = "WARN"
	case !isLogger(method.X):
	case name == "Warn":
		level = "WARN"
	case name == "Error":
		level = "ERROR"
	case name == "Log" && len(call.Args) > 1:
		// The level depends on whether it is news. The name of the variable says the highest.
		said = call.Args[1]
		level = map[string]string{"warnIfNew": "WARN", "errorIfNew": "ERROR", "warnFirst": "WARN"}[expression(call.Args[0])]
	}
	if level == "" {
		return nil, nil
	}
	messages := variable[expression(said)]
	if text, ok := literal(said); ok {
		messages = []string{text}
	}
	if len(messages) == 0 {
		return nil, fmt.Errorf("the message %s is no literal", expression(said))
	}
	var all []string
	for _, message := range messages {
		all = append(all, level+" "+message)
	}
	return all, nil
}

// isLogger reports whether an expression is a logger, by its name.
func isLogger(x ast.Expr) bool {
	name := expression(x)
	return name == "log" || name == "Log" || strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".Log") || strings.HasSuffix(name, ".Logger")
}

func expression(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return expression(x.X) + "." + x.Sel.Name
	default:
		return fmt.Sprintf("%T", x)
	}
}

// literal returns the value of a string literal, or of a sum of some.
func literal(x ast.Expr) (string, bool) {
	switch x := x.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		a, okA := literal(x.X)
		b, okB := literal(x.Y)
		return a + b, okA && okB
	default:
		return "", false
	}
}
