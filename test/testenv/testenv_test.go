// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSkips_OnlyInThisPackage: only this package skips tests. In make test, a skip elsewhere would hide a missing tool.
func TestSkips_OnlyInThisPackage(t *testing.T) {
	skip := regexp.MustCompile(`\b[a-z]+\.Skip(f|Now)?\(`)
	files := 0
	err := filepath.WalkDir(Root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(Root(), path)
		switch {
		case d.IsDir() && (name == ".git" || name == "bin" || name == "test/testenv"):
			return filepath.SkipDir
		// Userspace mode cannot pass some end-to-end tests, by design. An aggregator skips Services.
		case !strings.HasSuffix(name, ".go") || name == "test/e2e/e2e_test.go" || name == "proxy/proxy.go":
			return nil
		}
		text, err := os.ReadFile(path)
		if files++; skip.Match(text) {
			t.Errorf("%s: call testenv instead of t.Skip", name)
		}
		return err
	})
	if err != nil || files < 300 {
		t.Fatalf("%d files: %v", files, err)
	}
}

func TestMissing_FailsInTiers(t *testing.T) {
	for tier, want := range map[string]string{"": "skipped", "once": "failed", "all": "failed"} {
		t.Setenv("SLUICE_TESTS", tier)
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			NeedsTool(r, "no-such-tool", "no-such-package")
		}()
		if r.got != want {
			t.Errorf("SLUICE_TESTS=%s: %q, want %q", tier, r.got, want)
		}
	}
}

// recorder remembers how a test ended.
type recorder struct {
	testing.TB
	got string
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.got = "skipped"; panic(r) }
func (r *recorder) Fatalf(string, ...any) { r.got = "failed"; panic(r) }
