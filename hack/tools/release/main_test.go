// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	top     = "../../.."
	version = "v1.2.3"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	program = "sluice-v1.2.3-linux-amd64"
	plugin  = "kubectl-sluice-v1.2.3-linux-amd64"
	image   = "sluice-v1.2.3.tar"
	chart   = "sluice-chart-v1.2.3.tgz"
)

// must runs a program.
func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if printed, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, printed)
	}
}

// bin has the programs that make a release.
var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "release-test-"); err != nil {
		panic(err)
	}
	printed, err := exec.Command("go", "build", "-o", bin, "../image", "../sbom").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s\n", err, printed)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(bin)
	os.Exit(status)
}

// artifacts makes the files of a release as hack/release/build does, with a program of this module in place of Sluice.
// Its image is in a registry if its name has one. The files are not attested yet.
func artifacts(t *testing.T, named string) *options {
	t.Helper()
	o := &options{dir: t.TempDir(), version: version, commit: commit, image: named, builder: repository + "/test", goVersion: "go1.26.8"}
	scratch := t.TempDir()
	o.packages = filepath.Join(scratch, "packages")
	write(t, o.packages, []byte("iptables 1.8.9-2 amd64 iptables 1.8.9-2\n"))
	write(t, filepath.Join(scratch, "root/etc/protocols"), []byte("tcp 6\n"))
	write(t, filepath.Join(scratch, "licenses/LICENSE"), []byte("Apache\n"))
	write(t, o.path("LICENSES.txt"), []byte("==> LICENSE <==\nApache\n"))
	write(t, o.path(program), content(t, filepath.Join(bin, "sbom")))
	write(t, o.path(plugin), content(t, filepath.Join(bin, "image")))
	must(t, filepath.Join(bin, "image"), "-out", o.path(image), "-static", o.path("sluice-v1.2.3-static.tar"), "-name", named+":"+version,
		"-created", "1700000000", "-licenses", filepath.Join(scratch, "licenses"), "-binary", "amd64="+o.path(program), "-root", "amd64="+filepath.Join(scratch, "root"))
	for name, args := range map[string][]string{
		program:                     {"-binary", o.path(program)},
		plugin:                      {"-binary", o.path(plugin), "-name", "kubectl-sluice"},
		"sluice-v1.2.3-image-amd64": {"-binary", o.path(program), "-packages", o.packages},
	} {
		must(t, filepath.Join(bin, "sbom"), append(args, "-version", version, "-arch", "amd64", "-created", "1700000000", "-out", o.path(name+sbomSuffix))...)
	}
	digest := ""
	if strings.Contains(named, "/") {
		archive, err := readArchive(o.path(image))
		if err != nil {
			t.Fatal(err)
		}
		digest = "sha256:" + archive.digest
	}
	must(t, top+"/hack/release/chart", version, o.path(chart), named, digest)
	reference := strings.TrimSuffix(named+":"+version+"@"+digest, "@")
	write(t, o.path("install.yaml"), bytes.ReplaceAll(content(t, top+"/deploy/install.yaml"), []byte("sluice:latest"), []byte(reference)))
	o.writeSums(t)
	return o
}

func (o *options) writeSums(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for _, file := range files {
		if name := file.Name(); name != sumsFile && name != sumsBundle && name != attestations {
			sum, err := o.sumOf(name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&lines, "%s  %s\n", sum, name)
		}
	}
	write(t, o.path(sumsFile), lines.Bytes())
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// keys writes a private and a public key in the format of openssl.
func keys(t *testing.T, kind string) (private, public string) {
	t.Helper()
	var signer, verifier any
	var err error
	if kind == "ed25519" {
		verifier, signer, err = ed25519.GenerateKey(rand.Reader)
	} else {
		var key *ecdsa.PrivateKey
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err == nil {
			signer, verifier = key, key.Public()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	private, public = filepath.Join(dir, "private.pem"), filepath.Join(dir, "public.pem")
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	write(t, private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if der, err = x509.MarshalPKIXPublicKey(verifier); err != nil {
		t.Fatal(err)
	}
	write(t, public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return private, public
}

// attested attests a release with a key, which is empty for none.
func attested(t *testing.T, o *options, key string) string {
	t.Helper()
	o.key = key
	var printed bytes.Buffer
	if err := o.attest(&printed); err != nil {
		t.Fatal(err)
	}
	return printed.String()
}

// verified returns the table and the error of a verification of version, with further arguments.
func verified(o *options, key string, args ...string) (string, error) {
	var table bytes.Buffer
	err := run(append([]string{"verify", "-dir", o.dir, "-key", key, "-version", version}, args...), &table)
	return table.String(), err
}

// TestVerify_OlderRelease: verification rejects a complete, signed release of another version or commit than the
// expected one.
func TestVerify_OlderRelease(t *testing.T) {
	private, public := keys(t, "ed25519")
	o := artifacts(t, "sluice")
	attested(t, o, private)
	for _, c := range []struct {
		args []string
		row  string // the row of the defect; empty for no defect
	}{
		{[]string{"-commit", commit}, ""},
		{[]string{"-version", "v1.2.4"}, version},
		{[]string{"-commit", strings.Repeat("f", 40)}, commit},
		{[]string{"-version", "v1.2.4", "-commit", commit}, version},
	} {
		table, err := verified(o, public, c.args...)
		if (err == nil) != (c.row == "") || err != nil && !defect(table, c.row) || strings.Count(table, "DEFECT") > 1 {
			t.Errorf("%v: want a defect of %q: %v\n%s", c.args, c.row, err, table)
		}
		if !strings.Contains(table, "\nversion  ") || !strings.Contains(table, "  "+version+"  ") || !strings.Contains(table, "  "+commit+"  ") {
			t.Errorf("%v: no version or commit in\n%s", c.args, table)
		}
	}
	if table, err := verified(o, public); err != nil || !strings.Contains(table, "  not compared: no COMMIT is given\n") {
		t.Errorf("without a commit: %v\n%s", err, table)
	}
	if _, err := verified(o, public, "-version", ""); err == nil || !strings.Contains(err.Error(), "VERSION") {
		t.Errorf("without a version: %v", err)
	}
}

// TestVerify_Release: a signed release passes verification, with each type of key.
func TestVerify_Release(t *testing.T) {
	for _, c := range []struct{ kind, image string }{{"ed25519", "sluice"}, {"ecdsa", "registry.example:5000/net/sluice"}} {
		t.Run(c.kind, func(t *testing.T) {
			private, public := keys(t, c.kind)
			o := artifacts(t, c.image)
			if said := attested(t, o, private); !strings.Contains(said, "4 attestations of 10 files, signed") {
				t.Errorf("it prints %s", said)
			}
			table, err := verified(o, public)
			if err != nil {
				t.Errorf("%v\n%s", err, table)
			}
			for _, row := range []string{"signature", "checksum", "no other files", "signatures", "provenance", "SBOM", "image"} {
				if !strings.Contains(table, "\n"+row+"  ") {
					t.Errorf("no row %s in\n%s", row, table)
				}
			}
			if c.image == "sluice" == strings.Contains(string(content(t, o.path("install.yaml"))), "@sha256:") {
				t.Errorf("install.yaml has a digest, or none, with the image %s", c.image)
			}
		})
	}
}

// TestAttest_Reproducible: equal files give equal statements, with or without a key. Without a key, the release is
// marked as not signed, and verification fails.
func TestAttest_Reproducible(t *testing.T) {
	private, public := keys(t, "ecdsa")
	o := artifacts(t, "sluice")
	payloads := func() (all []string) {
		for line := range bytes.Lines(content(t, o.path(attestations))) {
			var envelope struct {
				PayloadType, Payload string
			}
			if err := json.Unmarshal(line, &envelope); err != nil || envelope.PayloadType != payloadType {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, envelope.Payload)
		}
		return all
	}
	attested(t, o, private)
	signed := payloads()
	if err := os.Remove(o.path(sumsBundle)); err != nil {
		t.Fatal(err)
	}
	if said := attested(t, o, ""); !strings.Contains(said, "NOT SIGNED") {
		t.Errorf("it prints %s", said)
	}
	if got := payloads(); strings.Join(got, "\n") != strings.Join(signed, "\n") || len(got) != 4 {
		t.Errorf("%d statements without a key, %d others with one", len(got), len(signed))
	}
	if table, err := verified(o, public); err == nil || !defect(table, sumsBundle) || !defect(table, attestations) {
		t.Errorf("%v\n%s", err, table)
	}
	first, err := base64.StdEncoding.DecodeString(signed[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"gitCommit":"` + commit, "pkg:golang/stdlib@1.26.8", "pkg:deb/debian/iptables@1.8.9-2", `"version":"v1.2.3"`, repository + "/test"} {
		if !strings.Contains(string(first), want) {
			t.Errorf("no %s in %s", want, first)
		}
	}
}

// defect reports whether a table has a defect of a file.
func defect(table, file string) bool {
	for line := range strings.Lines(table) {
		if strings.Contains(line, "  "+file+"  ") && strings.Contains(line, "DEFECT: ") {
			return true
		}
	}
	return false
}

// edit replaces a text in a file by another of the same length.
func edit(t *testing.T, path, from, to string) {
	t.Helper()
	text := content(t, path)
	if from == "" {
		from = string(text[len(text)/2 : len(text)/2+4])
		to = "\x00\x01\x02\x03"
	}
	if !bytes.Contains(text, []byte(from)) {
		t.Fatalf("%s does not contain %q", path, from)
	}
	write(t, path, bytes.Replace(text, []byte(from), []byte(to), 1))
}

// TestVerify_ChangedFiles: verification names the file that was changed, removed or added after the signature.
func TestVerify_ChangedFiles(t *testing.T) {
	private, public := keys(t, "ecdsa")
	original := artifacts(t, "registry.example/sluice")
	attested(t, original, private)
	_, stranger := keys(t, "ecdsa")
	if table, err := verified(original, stranger); err == nil || !defect(table, sumsBundle) || !defect(table, attestations) {
		t.Errorf("with another key: %v\n%s", err, table)
	}
	sbom := program + sbomSuffix
	for name, c := range map[string]struct {
		file     string
		from, to string
		resum    bool // the attacker updates SHA256SUMS, too
	}{
		"program":           {file: program},
		"plugin":            {file: plugin},
		"image":             {file: image},
		"static image":      {file: "sluice-v1.2.3-static.tar"},
		"chart":             {file: chart},
		"manifests":         {file: "install.yaml", from: "@sha256:", to: "@sha512:"},
		"SBOM":              {file: sbom, from: "cyclonedx-go", to: "cyclonedx-no"},
		"SBOM of the image": {file: "sluice-v1.2.3-image-amd64" + sbomSuffix, from: "1.8.9-2", to: "1.8.9-3"},
		"attestations":      {file: attestations, from: `"payload":"`, to: `"payload":"A`},
		"signature":         {file: sumsBundle, from: `"signature":"`, to: `"signature":"AAAA`},
		"sums":              {file: sumsFile, from: "  " + program, to: "  sluice-v1.2.4-linux-amd64"},
		"program and sums":  {file: program, resum: true},
		"SBOM and sums":     {file: sbom, from: "cyclonedx-go", to: "cyclonedx-no", resum: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &options{dir: t.TempDir()}
			if err := os.CopyFS(o.dir, os.DirFS(original.dir)); err != nil {
				t.Fatal(err)
			}
			edit(t, o.path(c.file), c.from, c.to)
			named := c.file
			if c.resum {
				o.writeSums(t)
			}
			if c.resum || c.file == sumsFile {
				named = sumsBundle
			}
			if table, err := verified(o, public); err == nil || !defect(table, named) {
				t.Errorf("no defect of %s: %v\n%s", named, err, table)
			}
		})
	}
	extra := original.path("README")
	write(t, extra, []byte("run me\n"))
	if table, err := verified(original, public); err == nil || !strings.Contains(table, "README is not part of the release") {
		t.Errorf("a file more: %v\n%s", err, table)
	}
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(original.path(plugin)); err != nil {
		t.Fatal(err)
	}
	if table, err := verified(original, public); err == nil || !defect(table, plugin) {
		t.Errorf("a file less: %v\n%s", err, table)
	}
}

// TestVerify_SignedMistakes: verification finds mistakes made before the signature, too: another image, and an SBOM of
// another program.
func TestVerify_SignedMistakes(t *testing.T) {
	private, public := keys(t, "ed25519")
	for name, c := range map[string]struct {
		file   string
		change func(o *options)
	}{
		"digest in the manifests": {"install.yaml", func(o *options) {
			write(t, o.path("install.yaml"), []byte("image: registry.example/sluice:v1.2.3@sha256:"+strings.Repeat("0", 64)+"\n"))
		}},
		"no digest in the chart": {chart, func(o *options) {
			must(t, top+"/hack/release/chart", version, o.path(chart), "registry.example/sluice")
		}},
		"other image in the chart": {chart, func(o *options) { must(t, top+"/hack/release/chart", version, o.path(chart)) }},
		"SBOM of another program": {plugin + sbomSuffix, func(o *options) {
			write(t, o.path(plugin+sbomSuffix), content(t, o.path(program+sbomSuffix)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := artifacts(t, "registry.example/sluice")
			c.change(o)
			o.writeSums(t)
			attested(t, o, private)
			if table, err := verified(o, public); err == nil || !defect(table, c.file) {
				t.Errorf("no defect of %s: %v\n%s", c.file, err, table)
			}
		})
	}
}
