// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// avoided are words with a more common term, which follows them; see CONTRIBUTING.md.
var avoided = map[string]string{
	"beside": "with, next to, compared with, during", "mend|mends|mended": "fix, repair", "anew|once more": "again",
	"likewise": "also", "the former|the latter": "the noun", "in trouble": "unhealthy", "what becomes of": "what happens to",
	"processor time": "CPU time", "folders?": "directory", "mistakes?": "error, bug", "weakness(?:es)?": "vulnerability",
	"clean-up|hand-over|look-up|take-over|roll-out|roll-back|fall-back": "one word (verb: two words)",
	"nobody|somebody|everybody":                                         "no one, or the passive", "at once": "immediately, at the same time",
	"of (?:its|their) own": "separate, dedicated", "whatever": "regardless of", "by itself": "automatically",
	"in force": "applied", "(?:colour|behaviour|honour|favour|catalogue|initialise|recognise|normalise|organise)\\w*": "American spelling",
}

// outsideProse are fences, code spans and the targets of links.
var outsideProse = regexp.MustCompile("(?s)```.*?```|`[^`]*`|\\]\\([^)]*\\)|<!--.*?-->")

// spoken are functions and fields whose texts a user reads.
var spoken = regexp.MustCompile(`^(Debug|Info|Warn|Error|Log|New|Errorf|F?[pP]rint(f|ln)|say|warn|counter|(String|Bool)Var|flag|text|value|number|duration|Short|Long|Problem)$`)

// noProduct is code that is no part of the product.
var noProduct = regexp.MustCompile(`^\.\./(test|bench|hack)/`)

// TestWords checks that no page, and no text that the program prints, contains a word to avoid. The changelog, which
// quotes old names, is not checked.
func TestWords(t *testing.T) {
	var words []string
	for word := range avoided {
		words = append(words, word)
	}
	found := regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
	check := func(where, text string) {
		for _, hit := range found.FindAllString(text, -1) {
			t.Errorf("%s: %q: write %s", where, hit, instead(hit))
		}
	}
	for _, page := range markdown(t) {
		if page == "../CHANGELOG.md" {
			continue
		}
		check(page, strings.Join(strings.Fields(outsideProse.ReplaceAllString(read(t, page), " ")), " "))
	}
	if texts := eachText(t, check); texts < 500 {
		t.Errorf("only %d texts in the source", texts)
	}
}

// eachText calls check with the literals in arguments and fields that are spoken, and returns their number.
func eachText(t *testing.T, check func(where, text string)) (texts int) {
	t.Helper()
	files := token.NewFileSet()
	literals := func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			texts++
			check(files.Position(l.Pos()).String(), l.Value)
		}
		return true
	}
	for _, path := range tracked(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || noProduct.MatchString(path) {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && spoken.MatchString(f.Sel.Name) {
					ast.Inspect(n, literals)
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && spoken.MatchString(key.Name) {
					ast.Inspect(n.Value, literals)
				}
			}
			return true
		})
	}
	return texts
}

// instead returns what to write for a word to avoid.
func instead(hit string) string {
	for word, better := range avoided {
		if regexp.MustCompile(`(?i)^(?:` + word + `)$`).MatchString(hit) {
			return better
		}
	}
	return ""
}
