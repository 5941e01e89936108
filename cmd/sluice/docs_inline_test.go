// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// followedElsewhere has the pages whose commands need an API server with controllers.
const followedElsewhere = "test/e2e/pages_test.go"

// TestDocs_EveryCommandIsRun checks that a test follows each page with commands, and that each fence names its content.
func TestDocs_EveryCommandIsRun(t *testing.T) {
	elsewhere := readPage(t, followedElsewhere)
	for _, page := range markdown(t) {
		commands, err := doctest.Parse(filepath.Join("..", "..", page))
		if err != nil {
			t.Error(err)
		}
		followed := slices.ContainsFunc(pages, func(p followedPage) bool { return p.page == page }) ||
			strings.Contains(elsewhere, `"`+page+`"`)
		for _, c := range commands {
			if !c.Skip && !followed {
				t.Errorf("%s:%d: neither TestDocs_Pages nor %s runs this command: %s", page, c.Line, followedElsewhere, c.Text)
				break
			}
		}
	}
}

// TestDocs_InlineCommandsExist checks the command, the flags and the number of arguments of each command of this
// program that is between backticks, or in a fence that no test here runs.
func TestDocs_InlineCommandsExist(t *testing.T) {
	checked := 0
	for _, page := range markdown(t) {
		if strings.HasPrefix(page, "CHANGELOG") { // what a former release had
			continue
		}
		for _, text := range commandsIn(t, page) {
			checked++
			if err := exists(text); err != nil && !errors.Is(err, pflag.ErrHelp) {
				t.Errorf("%s: `%s`: %v", page, text, err)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d commands: the search for them is broken", checked)
	}
}

func TestExists(t *testing.T) {
	for text, want := range map[string]string{
		"sluice get services -n NS --sort-by changes": "",
		"sluice cleanup [--dry-run]":                  "",
		"sluice completion bash":                      "",
		"sluice gets services":                        "no such command",
		"sluice get pods":                             "no such command",
		"sluice status web":                           "takes no",
		"sluice get services --sort changes":          "unknown flag: --sort",
		"sluice get services -x":                      "unknown shorthand",
	} {
		if err := exists(text); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

var (
	fences = regexp.MustCompile("(?ms)^```.*?^```")
	// inline is a command of this program between backticks; a line may end inside.
	inline = regexp.MustCompile("`(sluice\\s[^`]*)`")
	// flagAlone is a flag at the beginning of what is between backticks.
	flagAlone = regexp.MustCompile("`--([a-z0-9-]*[a-z0-9])[ =`]")
	// started is one at the beginning of a command line, or after what enters a pod.
	started = regexp.MustCompile(`(?:^|\n|-- )(sluice [^|;&#<>\n]*)`)
)

// commandsIn returns the commands of this program in a page.
func commandsIn(t *testing.T, page string) (found []string) {
	t.Helper()
	for _, m := range inline.FindAllStringSubmatch(fences.ReplaceAllString(readPage(t, page), ""), -1) {
		found = append(found, strings.Join(strings.Fields(m[1]), " "))
	}
	commands, err := doctest.Parse(filepath.Join("..", "..", page))
	if err != nil {
		t.Error(err)
	}
	for _, c := range commands {
		for _, m := range started.FindAllStringSubmatch(c.Text, -1) {
			found = append(found, m[1])
		}
	}
	return found
}

// exists reports whether a command line could be typed. Words in capitals stand for values,
// and brackets are around what may be left out.
func exists(text string) error {
	words := strings.Fields(strings.NewReplacer("[", "", "]", "", "…", "", `"`, "").Replace(text))[1:]
	root := rootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	arguments := cmd.Flags().Args()
	switch {
	case len(arguments) == 0: // a page may name a command without its arguments
		return nil
	case cmd.HasSubCommands():
		return fmt.Errorf("no such command: %s %s", cmd.CommandPath(), arguments[0])
	default:
		return cmd.ValidateArgs(arguments)
	}
}

// markdown returns the pages of the repository.
func markdown(t *testing.T) (pages []string) {
	t.Helper()
	out, err := exec.Command("git", "-C", "../..", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	pages = strings.Fields(string(out))
	if len(pages) < 20 {
		t.Fatalf("%d pages: must be all of the repository", len(pages))
	}
	return pages
}

// readPage returns the text of a file of the repository.
func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocs_InlineFlagsExist checks that each flag that stands alone between backticks exists.
func TestDocs_InlineFlagsExist(t *testing.T) {
	known := map[string]bool{ // of docker build, Prometheus, kubectl, kubeadm, az and iptables
		"target": true, "enable-feature": true, "overwrite": true, "random-fully": true,
		"skip-phases": true, "kube-proxy-config": true,
	}
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		for _, sub := range cmd.Commands() {
			collect(sub)
		}
	}
	collect(rootCommand())
	for _, page := range markdown(t) {
		if strings.HasPrefix(page, "CHANGELOG") {
			continue
		}
		for _, m := range flagAlone.FindAllStringSubmatch(fences.ReplaceAllString(readPage(t, page), ""), -1) {
			if !known[m[1]] {
				t.Errorf("%s: `--%s`: no command has this flag", page, m[1])
			}
		}
	}
}
