// SPDX-License-Identifier: Apache-2.0

// Command sbom lists what a program, or an image with Debian packages, is made of, in the
// format CycloneDX. `make release` calls it. The modules are those that the program itself
// records, so the list cannot differ from what was linked. Equal inputs give equal bytes.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"
)

type options struct {
	binary, name, packages, licenses, version, arch, out string
	created                                              time.Time
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "the program")
	flag.StringVar(&o.name, "name", "", "its name; empty for sluice")
	flag.StringVar(&o.packages, "packages", "", "the Debian packages beside it, as hack/image/debian-root lists them; empty for the program alone")
	flag.StringVar(&o.licenses, "licenses", "", "the directory of hack/image/licenses, which must contain each module; empty for no check")
	flag.StringVar(&o.version, "version", "", "its version")
	flag.StringVar(&o.arch, "arch", "", "its architecture")
	flag.StringVar(&o.out, "out", "", "the file to write")
	flag.Func("created", "time of the list, in seconds since 1970", func(text string) error {
		seconds, err := strconv.ParseInt(text, 10, 64)
		o.created = time.Unix(seconds, 0).UTC()
		return err
	})
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func (o *options) run() error {
	bom, err := o.bom()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	return os.WriteFile(o.out, text.Bytes(), 0o644)
}

// bom makes the list. The program, or the image, depends on everything else.
func (o *options) bom() (*cdx.BOM, error) {
	program, modules, err := o.program()
	if err != nil {
		return nil, err
	}
	whole, parts := program, modules
	if o.packages != "" {
		packages, err := o.debian()
		if err != nil {
			return nil, err
		}
		whole = cdx.Component{BOMRef: "image", Type: cdx.ComponentTypeContainer, Name: "sluice", Version: o.version,
			Description: "the default image for linux/" + o.arch + ": the program, and Debian's iptables"}
		parts = slices.Concat([]cdx.Component{program}, modules, packages)
	}
	depends := []string{}
	for _, part := range parts {
		depends = append(depends, part.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, *program.Hashes, whole.BOMRef, depends)).String()
	bom.Metadata = &cdx.Metadata{Timestamp: o.created.Format(time.RFC3339), Component: &whole}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: whole.BOMRef, Dependencies: &depends}}
	return bom, nil
}

// program reads what the program records: itself, Go's standard library, and modules.
func (o *options) program() (program cdx.Component, modules []cdx.Component, err error) {
	info, err := buildinfo.ReadFile(o.binary)
	if err != nil {
		return program, nil, err
	}
	if err := licensed(o.licenses, info); err != nil {
		return program, nil, err
	}
	file, err := os.Open(o.binary)
	if err != nil {
		return program, nil, err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return program, nil, err
	}
	program = cdx.Component{
		BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: cmp.Or(o.name, "sluice"), Version: o.version,
		Description: "the program for linux/" + o.arch,
		PackageURL:  golang(info.Main.Path, o.version),
		Hashes:      &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum.Sum(nil))}},
		Licenses:    &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Properties:  settings(info),
	}
	modules = append(modules, library("stdlib", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		modules = append(modules, library(dep.Path, dep.Version, dep.Sum))
	}
	return program, modules, nil
}

// licensed checks that a directory has the licenses of each module that a program records.
func licensed(dir string, info *debug.BuildInfo) error {
	if dir == "" {
		return nil
	}
	for _, dep := range info.Deps {
		if _, err := os.Stat(filepath.Join(dir, dep.Path+"@"+dep.Version)); err != nil {
			return fmt.Errorf("no license of %s: %w", dep.Path, err)
		}
	}
	return nil
}

// settings are those of the build that decide what was built.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	all := []cdx.Property{{Name: "go.version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "GO") || strings.HasPrefix(s.Key, "vcs.") || s.Key == "CGO_ENABLED" || s.Key == "-trimpath" {
			all = append(all, cdx.Property{Name: "go.build." + s.Key, Value: s.Value})
		}
	}
	return &all
}

func library(path, version, sum string) cdx.Component {
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: golang(path, version)}
	c.BOMRef = c.PackageURL
	if sum != "" { // of the module's files, as in go.sum
		c.Properties = &[]cdx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}

func golang(path, version string) string {
	folder, name := "", path
	if at := strings.LastIndex(path, "/"); at >= 0 {
		folder, name = path[:at], path[at+1:]
	}
	return packageurl.NewPackageURL(packageurl.TypeGolang, folder, name, version, nil, "").ToString()
}

// debian reads the list of Debian packages: name, version, architecture, source, its version.
func (o *options) debian() (packages []cdx.Component, err error) {
	file, err := os.Open(o.packages)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 5 {
			return nil, fmt.Errorf("%s: %q: must have 5 words", o.packages, lines.Text())
		}
		qualifiers := packageurl.QualifiersFromMap(map[string]string{
			"arch": words[2], "distro": "debian-12", "upstream": words[3] + "@" + words[4],
		})
		url := packageurl.NewPackageURL(packageurl.TypeDebian, "debian", words[0], words[1], qualifiers, "").ToString()
		packages = append(packages, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: words[0], Version: words[1], PackageURL: url,
		})
	}
	slices.SortFunc(packages, func(a, b cdx.Component) int { return cmp.Compare(a.Name, b.Name) })
	if len(packages) == 0 {
		return nil, fmt.Errorf("%s: no packages", o.packages)
	}
	return packages, nil
}
