package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
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

// TestWords checks the pages, and the texts that a user of the program reads, for words to avoid.
// The changelog is not checked: it quotes names of the past.
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
		if page != "../CHANGELOG.md" {
			check(page, strings.Join(strings.Fields(outsideProse.ReplaceAllString(read(t, page), " ")), " "))
		}
	}
	texts := 0
	for _, dir := range []string{"cmd", "internal", "observe", "source", "dataplane", "aggregator", "actors", "proxy"} {
		for where, text := range userTexts(t, filepath.Join("..", dir)) {
			texts++
			check(where, text)
		}
	}
	if texts < 500 {
		t.Errorf("only %d texts in the source", texts)
	}
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

// userTexts returns the string literals of a directory's code that users read, by position: arguments of
// loggers, errors and printers, and fields of commands.
func userTexts(t *testing.T, dir string) map[string]string {
	t.Helper()
	texts, files := make(map[string]string), token.NewFileSet()
	add := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					texts[files.Position(l.Pos()).String()] = text
				}
			}
			return true
		})
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && spoken[f.Sel.Name] {
					for _, argument := range n.Args {
						add(argument)
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Short" || key.Name == "Long") {
					add(n.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// spoken are functions whose texts a user reads.
var spoken = map[string]bool{
	"Debug": true, "Info": true, "Warn": true, "Error": true, "Log": true, "New": true, "Errorf": true, "Fprintf": true, "Fprintln": true,
	"Printf": true, "Println": true, "say": true, "warn": true, "normal": true, "counter": true, "StringVar": true, "BoolVar": true,
	"flag": true, "text": true, "texts": true, "value": true, "number": true, "duration": true,
}
