// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script copies the licenses. It is in hack/image, since the Dockerfile runs it, too.
const script = "../../image/licenses"

// licenses runs the script in the directory of a module.
func licenses(t *testing.T, module string, args ...string) (dir string, err error) {
	t.Helper()
	path, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "licenses")
	cmd := exec.Command(path, append([]string{dir}, args...)...)
	cmd.Dir = module
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%v: %s", err, printed)
		return string(printed), err
	}
	return dir, nil
}

// TestLicenses_EveryLinkedModule: the licenses contain the texts of Go, Sluice and every module that the binaries
// record.
func TestLicenses_EveryLinkedModule(t *testing.T) {
	const top = "../../.."
	dir, err := licenses(t, top)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./cmd/...") // as make build, so the build cache serves it
	build.Dir, build.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	for _, name := range []string{"sluice", "kubectl-sluice"} {
		info, err := buildinfo.ReadFile(filepath.Join(bin, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := licensed(dir, info); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(info.Deps) < 10 {
			t.Errorf("%s has %d modules: this test proves nothing", name, len(info.Deps))
		}
		last := info.Deps[len(info.Deps)-1]
		if err := os.RemoveAll(filepath.Join(dir, last.Path+"@"+last.Version)); err != nil {
			t.Fatal(err)
		}
		if err := licensed(dir, info); err == nil || !strings.Contains(err.Error(), last.Path) {
			t.Errorf("without the license of %s: %v", last.Path, err)
		}
		if dir, err = licenses(t, top); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{
		"github.com/sluice-proxy/sluice/LICENSE", "go@go1.*/LICENSE", "github.com/coreos/go-iptables@v*/NOTICE",
		"k8s.io/utils@v*/third_party/forked/golang/LICENSE", // of a copied part
	} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) != 1 {
			t.Errorf("%s: %v", pattern, found)
		}
	}
}

// TestLicenses_MissingLicense: a module without a license fails the build with its name, even if one of its folders has
// a license.
func TestLicenses_MissingLicense(t *testing.T) {
	module := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module example.com/top\ngo 1.26\nrequire example.com/part v0.0.0\nreplace example.com/part => ./part\n",
		"LICENSE":             "top\n",
		"main.go":             "package main\nimport _ \"example.com/part\"\nfunc main() {}\n",
		"part/go.mod":         "module example.com/part\ngo 1.26\n",
		"part/part.go":        "package part\n",
		"part/license.go":     "package part\n",
		"part/forked/LICENSE": "forked\n",
	} {
		path := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if printed, err := licenses(t, module, "."); err == nil || !strings.Contains(printed, "example.com/part@v0.0.0") {
		t.Errorf("%v: %s", err, printed)
	}
	if err := os.WriteFile(filepath.Join(module, "part/COPYING"), []byte("part\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := licenses(t, module, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"example.com/top/LICENSE", "example.com/part@v0.0.0/COPYING", "example.com/part@v0.0.0/forked/LICENSE"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
