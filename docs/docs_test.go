// SPDX-License-Identifier: Apache-2.0

// Package docs checks the pages of this project: that links lead somewhere.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// TestLinks_TargetsExist checks that each relative link of a page of the repository leads to an existing file and, if
// it names one, heading.
func TestLinks_TargetsExist(t *testing.T) {
	pages := markdown(t)
	if len(pages) < 20 {
		t.Fatalf("%d pages: want all of the repository", len(pages))
	}
	links := 0
	for _, page := range pages {
		for _, link := range linksOf(read(t, page)) {
			file, heading, _ := strings.Cut(link, "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			links++
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: no such file", page, link)
			} else if heading != "" && !headings(read(t, target))[heading] {
				t.Errorf("%s: link to %s: no such heading", page, link)
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links: the search for them is broken", links)
	}
}

// TestLinks_TestsExist checks that each link whose text is the name of a test leads to a file with that test.
func TestLinks_TestsExist(t *testing.T) {
	named := regexp.MustCompile(`\[(Test\w+)\]\(([^)\s]+)\)`)
	found := 0
	for _, page := range markdown(t) {
		for _, match := range named.FindAllStringSubmatch(read(t, page), -1) {
			found++
			file := filepath.Join(filepath.Dir(page), match[2])
			text, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(text), "func "+match[1]+"(") {
				t.Errorf("%s: %s has no %s (%v)", page, file, match[1], err)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d links to tests: the search for them is broken", found)
	}
}

// TestPages_NamedTestsExist checks that each test that a page names as code exists.
func TestPages_NamedTestsExist(t *testing.T) {
	var source strings.Builder
	for _, file := range tracked(t, "_test.go") {
		source.WriteString(read(t, file))
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`")
	for _, page := range markdown(t) {
		for _, match := range named.FindAllStringSubmatch(read(t, page), -1) {
			if !strings.Contains(source.String(), "\nfunc "+match[1]+"(") {
				t.Errorf("%s: no test %s", page, match[1])
			}
		}
	}
}

// TestComments_OtherLinters checks that no comment addresses a linter that make lint does not run.
func TestComments_OtherLinters(t *testing.T) {
	for _, file := range tracked(t, ".go") {
		if strings.Contains(read(t, file), "//no"+"lint") {
			t.Errorf("%s: make lint runs no linter that reads this comment", file)
		}
	}
}

// TestPages_AllReachable checks that a reader who starts at the README finds every page.
func TestPages_AllReachable(t *testing.T) {
	start := filepath.Join("..", "README.md")
	seen, queue := map[string]bool{start: true}, []string{start}
	for len(queue) > 0 {
		page := queue[0]
		queue = queue[1:]
		for _, link := range linksOf(read(t, page)) {
			file, _, _ := strings.Cut(link, "#")
			target := filepath.Join(filepath.Dir(page), file)
			info, err := os.Stat(target)
			switch {
			case err != nil || file == "":
			case info.IsDir(): // the forge shows its pages
				inside, _ := filepath.Glob(filepath.Join(target, "*.md"))
				for _, page := range inside {
					if !seen[page] {
						seen[page] = true
						queue = append(queue, page)
					}
				}
			case strings.HasSuffix(target, ".md") && !seen[target]:
				seen[target] = true
				queue = append(queue, target)
			}
		}
	}
	for _, page := range markdown(t) {
		if !seen[page] {
			t.Errorf("%s: no page that the README leads to has a link to it", page)
		}
	}
}

// markdown returns the pages that the repository holds, relative to this folder.
func markdown(t *testing.T) []string { return tracked(t, ".md") }

// tracked returns the paths of all files of the repository with an ending, also those that are new.
func tracked(t *testing.T, ending string) (files []string) {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--full-name", "..").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); strings.HasSuffix(name, ending) {
			files = append(files, filepath.Join("..", name))
		}
	}
	return files
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fences  = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

// linksOf returns the relative links of a page. Lines may break inside them.
func linksOf(text string) (links []string) {
	text = code.ReplaceAllString(fences.ReplaceAllString(text, ""), "code")
	for _, match := range link.FindAllStringSubmatch(text, -1) {
		if to := match[1]; !strings.Contains(to, "://") && !strings.HasPrefix(to, "mailto:") {
			links = append(links, to)
		}
	}
	return links
}

// headings returns the anchors of a page's headings as the forge makes them: lower case,
// hyphens for spaces, no punctuation.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		anchors[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, match[1])] = true
	}
	return anchors
}
