// SPDX-License-Identifier: Apache-2.0

// Command release attests and verifies a release (docs/building.md). `make release` and `make verify` call it.
//
//	release attest -dir DIR -version VERSION -commit COMMIT [-key PRIVATE.pem]
//	release verify -dir DIR -key PUBLIC.pem -version VERSION [-commit COMMIT]
//
// A release is a directory with the artifacts, their SHA256SUMS, and the two files below. Equal inputs give equal bytes,
// except for signatures.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	sumsFile = "SHA256SUMS"
	// attestations has a DSSE envelope in each line: the provenance, and then a statement for each SBOM.
	attestations = "provenance.intoto.jsonl"
	sumsBundle   = "SHA256SUMS.sigstore.json"
)

type options struct {
	dir, key, version, commit, image, builder, goVersion, packages string
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, to io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command: must be attest or verify")
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "bin/release", "directory of the release")
	flags.StringVar(&o.key, "key", "", "PEM file with an Ed25519 or ECDSA key: private to attest, public to verify")
	flags.StringVar(&o.version, "version", "", "version of the release")
	flags.StringVar(&o.commit, "commit", "", "commit that was built; optional to verify")
	if args[0] == "attest" {
		flags.StringVar(&o.image, "image", "sluice", "name of the image, without a tag")
		flags.StringVar(&o.builder, "builder", repository+"/blob/main/hack/release/build", "URI of the builder")
		flags.StringVar(&o.goVersion, "go", "", "release of Go, for example go1.26.8")
		flags.StringVar(&o.packages, "packages", "", "lists of the Debian packages in the image (hack/image/debian-root), with a comma between them")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "attest":
		return o.attest(to)
	case "verify":
		return o.verify(to)
	}
	return fmt.Errorf("unknown command %q: must be attest or verify", args[0])
}

func (o *options) path(name string) string { return filepath.Join(o.dir, name) }

// sums reads SHA256SUMS.
func (o *options) sums() (map[string]string, error) {
	file, err := os.Open(o.path(sumsFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok || name != filepath.Base(name) {
			return nil, fmt.Errorf("%s: %q: must be SUM  FILE", sumsFile, lines.Text())
		}
		all[name] = sum
	}
	return all, lines.Err()
}

// sumOf returns the sum of a file.
func (o *options) sumOf(name string) (string, error) {
	file, err := os.Open(o.path(name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}
