// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// inputs makes a program and a file system for two architectures, as somebody with this umask would.
func inputs(t *testing.T, umask int, created time.Time) *options {
	t.Helper()
	defer syscall.Umask(syscall.Umask(umask))
	dir := t.TempDir()
	o := &options{
		out: filepath.Join(dir, "whole.tar"), static: filepath.Join(dir, "static.tar"), name: "sluice:v1",
		version: "v1", revision: "abc", created: created,
		licenses: filepath.Join(dir, "licenses"), binaries: map[string]string{}, roots: map[string]string{}, order: []string{"amd64", "arm64"},
	}
	for _, arch := range o.order {
		o.binaries[arch] = filepath.Join(dir, "sluice-"+arch)
		o.roots[arch] = filepath.Join(dir, "root-"+arch)
		for path, mode := range map[string]os.FileMode{o.binaries[arch]: 0o777, o.licenses + "/example.com/part@v1/LICENSE": 0o444, o.roots[arch] + "/usr/sbin/iptables-nft": 0o777, o.roots[arch] + "/etc/protocols": 0o666} {
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(filepath.Base(path)), mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("iptables-nft", o.roots[arch]+"/usr/sbin/iptables"); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	return o
}

func content(t *testing.T, file string) []byte {
	t.Helper()
	all, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestImage_Reproducible: equal inputs give equal bytes, independent of their folder, the umask and the clock.
func TestImage_Reproducible(t *testing.T) {
	created := time.Unix(1_700_000_000, 0).UTC()
	a := inputs(t, 0o022, created)
	b := inputs(t, 0o077, created)
	if !bytes.Equal(content(t, a.out), content(t, b.out)) || !bytes.Equal(content(t, a.static), content(t, b.static)) {
		t.Error("the archives differ")
	}
	if other := inputs(t, 0o022, created.Add(time.Second)); bytes.Equal(content(t, a.out), content(t, other.out)) {
		t.Error("the time has no effect, so that this test proves nothing")
	}
}

// files returns the contents of an archive by name.
func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s belongs to somebody", header.Name)
		}
		if all[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImage_NameAndArchitectures: the image contains both architectures and has the full name under which a pod looks
// it up, with the default registry.
func TestImage_NameAndArchitectures(t *testing.T) {
	o := inputs(t, 0o022, time.Unix(1_700_000_000, 0))
	for file, tag := range map[string]string{o.out: "v1", o.static: "v1-static"} {
		archive := files(t, content(t, file))
		var index struct {
			Manifests []struct {
				Digest      string
				Annotations map[string]string
			}
		}
		if err := json.Unmarshal(archive["index.json"], &index); err != nil || len(index.Manifests) != 1 {
			t.Fatalf("%v: %s", err, archive["index.json"])
		}
		named := index.Manifests[0].Annotations
		if !regexp.MustCompile(`^[a-z]+\.io/library/sluice:`+tag+`$`).MatchString(named["io.containerd.image.name"]) ||
			named["org.opencontainers.image.ref.name"] != tag {
			t.Errorf("annotations %v", named)
		}
		image := archive["blobs/"+strings.ReplaceAll(index.Manifests[0].Digest, ":", "/")]
		for _, arch := range o.order {
			if !strings.Contains(string(image), `"architecture":"`+arch+`"`) {
				t.Errorf("%s: no %s in %s", file, arch, image)
			}
		}
	}
}

// TestImage_ContainsLicenses: the program's layer, which both images contain, includes the licenses; without licenses,
// no image is built.
func TestImage_ContainsLicenses(t *testing.T) {
	o := inputs(t, 0o077, time.Unix(1_700_000_000, 0))
	layer, err := o.program("amd64")
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	all, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	if text := files(t, all)[licensesFolder+"/example.com/part@v1/LICENSE"]; string(text) != "LICENSE" {
		t.Errorf("the license is %q", text)
	}
	o.licenses = ""
	if err := o.run(); err == nil || !strings.Contains(err.Error(), "licenses") {
		t.Errorf("without licenses: %v", err)
	}
}

// TestImage_MatchesDockerfile: the Dockerfile runs the container and creates folders as this program does, uses the
// same list of packages, and copies only existing files.
func TestImage_MatchesDockerfile(t *testing.T) {
	const top = "../../../"
	parsed, err := parser.Parse(bytes.NewReader(content(t, top+"Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	stages, arguments, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	goMod := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(content(t, top+"go.mod"))
	if len(arguments) != 3 || arguments[0].Args[0].Key != "GO" || *arguments[0].Args[0].Value != string(goMod[1]) {
		t.Errorf("want ARG GO=%s", goMod[1])
	}
	byName := map[string]instructions.Stage{}
	for i, name := range []string{"GO_IMAGE", "DEBIAN_IMAGE"} { // so that a build can name them by digest
		if stages[i].BaseName != "${"+name+"}" {
			t.Errorf("stage %s is from %s, want ${%s}", stages[i].Name, stages[i].BaseName, name)
		}
	}
	for _, s := range stages {
		byName[s.Name] = s
	}
	for _, name := range []string{"static", ""} {
		compareRun(t, name, byName[name])
	}
	made := runs(byName["program"])
	for _, folder := range folders {
		if !strings.Contains(made, " /out/"+folder+" ") {
			t.Errorf("the Dockerfile does not make %s", folder)
		}
	}
	if !strings.Contains(made, " hack/image/licenses /out/"+licensesFolder+" ") {
		t.Errorf("the Dockerfile does not copy the licenses: %s", made)
	}
	if !strings.Contains(made, "make build STRIP=1 ") || !strings.Contains(made, "ln -s sluice /out/usr/local/bin/kube-proxy") {
		t.Errorf("the program is made by %s", made)
	}
	if made := runs(byName["debian"]); !strings.Contains(made, "/image/debian-root $TARGETARCH /out $(grep -v '^#' /image/packages)") {
		t.Errorf("the packages are installed by %s", made)
	}
	for _, file := range []string{"packages", "debian-root", "trim"} {
		if _, err := os.Stat(top + "hack/image/" + file); err != nil {
			t.Error(err)
		}
	}
}

// compareRun compares how a container of a stage runs.
func compareRun(t *testing.T, name string, stage instructions.Stage) {
	t.Helper()
	want := runConfig("proxy")
	var env, entrypoint, cmd, copied []string
	for _, c := range stage.Commands {
		switch c := c.(type) {
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				env = append(env, pair.Key+"="+pair.Value)
			}
		case *instructions.EntrypointCommand:
			entrypoint = c.CmdLine
		case *instructions.CmdCommand:
			cmd = c.CmdLine
		case *instructions.CopyCommand:
			copied = append(copied, c.From)
		}
	}
	if stage.BaseName != "scratch" || !slices.Equal(env, want.Env) || !slices.Equal(entrypoint, want.Entrypoint) || !slices.Equal(cmd, want.Cmd) {
		t.Errorf("stage %q: from %s, %v, %v, %v; want scratch, %+v", name, stage.BaseName, env, entrypoint, cmd, want)
	}
	layers := []string{"program"}
	if name == "" {
		layers = []string{"debian", "program"}
	}
	if !slices.Equal(copied, layers) {
		t.Errorf("stage %q copies %v, want %v", name, copied, layers)
	}
}

// runs returns what a stage runs.
func runs(stage instructions.Stage) string {
	var all []string
	for _, c := range stage.Commands {
		if run, ok := c.(*instructions.RunCommand); ok {
			all = append(all, strings.Join(run.CmdLine, " "))
		}
	}
	return strings.Join(all, "\n")
}
