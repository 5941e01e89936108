// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read returns the tests of testdata/results.jsonl, which are lines of a run.
func read(t *testing.T) []test {
	t.Helper()
	file, err := os.Open("testdata/results.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // only read
	tests, err := readTests(file)
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

func TestReadTests(t *testing.T) {
	r := result{Tests: read(t)}
	for state, want := range map[string]int{passed: 2, failed: 1, skipped: 1, excluded: 2} {
		if got := r.count(state); got != want {
			t.Errorf("%d tests %s, want %d: %v", got, state, want, r.Tests)
		}
	}
	for _, one := range r.Tests {
		if strings.Contains(one.Message, "\n") || len(one.Message) > messageMax || one.State == excluded && one.Message != "" {
			t.Errorf("message of a test that is %s: %q", one.State, one.Message)
		}
	}
	if one := r.find(r.Tests[0].Name); one != r.Tests[0] {
		t.Errorf("find returns %v", one)
	}
}

// TestReadTests_NamesBrokenLine: the error about an invalid line contains the line.
func TestReadTests_NamesBrokenLine(t *testing.T) {
	if _, err := readTests(strings.NewReader("{}\nbroken\n")); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v, want one with the line", err)
	}
}

// TestReadTests_RejectsPreview: a result of the suite's preview, in which every test passes without running, is an
// error.
func TestReadTests_RejectsPreview(t *testing.T) {
	if _, err := readTests(strings.NewReader(`{"name":"[sig-network] a","state":"passed","attempts":0}`)); err == nil {
		t.Error("a test that did not run passed")
	}
}

// TestReadTests_LastAttemptCounts: the last attempt of a test counts.
func TestReadTests_LastAttemptCounts(t *testing.T) {
	tests, err := readTests(strings.NewReader(`{"name":"[sig-network] a","state":"failed","attempts":1}
{"name":"[sig-network] a","state":"passed","attempts":2}
{"name":"[sig-network] b","state":"timedout","attempts":2,"message":"no\nmore"}
`))
	if err != nil || len(tests) != 2 || tests[0].State != passed || tests[1].State != failed || tests[1].Message != "no" {
		t.Errorf("tests %v, error %v", tests, err)
	}
}

// TestPage: the section names the tests that only the baseline passes, and every exclusion.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	for _, proxy := range proxies {
		r := result{Proxy: proxy, Mode: "nftables", Version: "v1", Kubernetes: "v2", Kernel: "6", Tests: read(t)}
		if proxy == "sluice" {
			for i := range r.Tests {
				if r.Tests[i].State == passed {
					r.Tests[i].State = failed
					break
				}
			}
		}
		if err := r.write(resultFile(dir, proxy, r.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "page.md")
	if err := os.WriteFile(out, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePage(dir, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{"before\n" + begin, end + "after\n", "| kube-proxy | v1 | nftables | 2 | 1 | 1 | 2 |", "| sluice | v1 | nftables | 1 | 2 |",
		"in nftables mode: failed.", "| passed | failed |", "| failed | failed |"}
	for _, e := range exclusions {
		wanted = append(wanted, e.reason)
	}
	for _, want := range wanted {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not contain %q:\n%s", want, text)
		}
	}
}

// TestPage_Current: docs/reliability.md contains the recorded results.
func TestPage_Current(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(out, page, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePage("results", out); err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(out); err != nil || string(page) != string(want) {
		t.Errorf("docs/reliability.md is not up to date; run make conformance-page (%v)", err)
	}
}

// TestPage_NeedsResults: writing a page without results is an error.
func TestPage_NeedsResults(t *testing.T) {
	if err := writePage(t.TempDir(), filepath.Join(t.TempDir(), "page.md")); err == nil {
		t.Error("a page without results")
	}
}
