// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// list writes and reads the list of a program: this one.
func list(t *testing.T, packages string) (*cdx.BOM, []byte) {
	t.Helper()
	dir := t.TempDir()
	o := options{binary: filepath.Join(dir, "program"), version: "v1.2.3+x", arch: "amd64",
		out: filepath.Join(dir, "sbom"), created: time.Unix(1_700_000_000, 0).UTC()}
	if output, err := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", o.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if packages != "" {
		o.packages = filepath.Join(dir, "packages")
		if err := os.WriteFile(o.packages, []byte(packages), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.out)
	if err != nil {
		t.Fatal(err)
	}
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	return bom, text
}

func find(t *testing.T, bom *cdx.BOM, name string) cdx.Component {
	t.Helper()
	for _, c := range *bom.Components {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("%s is not listed", name)
	return cdx.Component{}
}

// TestSBOM_ProgramModules: the SBOM of a program lists its modules and the standard library, and two SBOMs of it are
// equal.
func TestSBOM_ProgramModules(t *testing.T) {
	bom, text := list(t, "")
	if _, again := list(t, ""); !bytes.Equal(text, again) {
		t.Error("two lists of one program differ")
	}
	module := find(t, bom, "github.com/CycloneDX/cyclonedx-go")
	if !strings.HasPrefix(module.PackageURL, "pkg:golang/github.com/cyclonedx/cyclonedx-go@v") &&
		!strings.HasPrefix(module.PackageURL, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v") {
		t.Errorf("module %+v", module)
	}
	if std := find(t, bom, "stdlib"); !strings.HasPrefix(std.PackageURL, "pkg:golang/stdlib@1.") {
		t.Errorf("standard library %+v", std)
	}
	whole := bom.Metadata.Component
	if whole.Name != "sluice" || whole.Version != "v1.2.3+x" || len((*whole.Hashes)[0].Value) != 64 {
		t.Errorf("program %+v", whole)
	}
	if depends := (*bom.Dependencies)[0]; depends.Ref != whole.BOMRef || len(*depends.Dependencies) != len(*bom.Components) {
		t.Errorf("dependencies %+v", depends)
	}
}

// TestSBOM_ImagePackages: the SBOM of an image also lists the Debian packages.
func TestSBOM_ImagePackages(t *testing.T) {
	bom, _ := list(t, "libc6 2.36-9+deb12u14 amd64 glibc 2.36-9+deb12u14\niptables 1.8.9-2 amd64 iptables 1.8.9-2\n")
	libc := find(t, bom, "libc6")
	if libc.PackageURL != "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=debian-12&upstream=glibc%402.36-9%2Bdeb12u14" {
		t.Errorf("%s", libc.PackageURL)
	}
	if bom.Metadata.Component.Type != cdx.ComponentTypeContainer || find(t, bom, "sluice").Type != cdx.ComponentTypeApplication {
		t.Errorf("%+v", bom.Metadata.Component)
	}
}

// TestSBOM_InvalidPackageLine: an invalid or empty list of packages is an error.
func TestSBOM_InvalidPackageLine(t *testing.T) {
	o := options{packages: filepath.Join(t.TempDir(), "packages")}
	for text, want := range map[string]string{"iptables\n": `"iptables": must have 5 words`, "": "no packages"} {
		if err := os.WriteFile(o.packages, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := o.debian(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
