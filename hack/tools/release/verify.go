// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"
)

// report is the table of what was checked.
type report struct {
	table   *tabwriter.Writer
	defects int
}

func (r *report) row(check, of string, err error) {
	result := "ok"
	if err != nil {
		r.defects++
		result = "DEFECT: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	fmt.Fprintf(r.table, "%s\t%s\t%s\n", check, of, result)
}

// verify checks everything that the files and the key prove, without a network.
func (o *options) verify(to io.Writer) error {
	k, err := readKey(o.key)
	if err != nil {
		return fmt.Errorf("name the public key with KEY: %w", err)
	}
	if o.version == "" {
		return errors.New("name the version that you expect with VERSION: a complete release of another version is signed, too")
	}
	sums, err := o.sums()
	if err != nil {
		return err
	}
	r := &report{table: tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)}
	fmt.Fprintln(r.table, "CHECK\tFILE\tRESULT")
	r.row("signature", sumsBundle, o.verifySums(k))
	o.verifyFiles(r, sums)
	provenance, sboms := o.readAttestations(r, k)
	r.row("provenance", attestations, sameSubjects(provenance, sums))
	r.parameter(provenance, "version", o.version)
	r.parameter(provenance, "commit", o.commit)
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if strings.HasSuffix(name, sbomSuffix) {
			r.row("SBOM", name, o.verifySBOM(name, sums, sboms))
		}
	}
	r.row("image", "install.yaml", o.verifyInstall())
	for name := range sums {
		if strings.HasPrefix(name, "sluice-chart-") {
			r.row("image", name, o.verifyChart(name))
		}
	}
	if err := r.table.Flush(); err != nil {
		return err
	}
	if r.defects > 0 {
		return fmt.Errorf("%s: %d defects: do not use this release", o.dir, r.defects)
	}
	return nil
}

// verifyFiles compares the directory with SHA256SUMS.
func (o *options) verifyFiles(r *report, sums map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum, err := o.sumOf(name)
		if err == nil && sum != sums[name] {
			err = fmt.Errorf("the sum is %s, %s has %s", sum, sumsFile, sums[name])
		}
		r.row("checksum", name, err)
	}
	entries, err := os.ReadDir(o.dir)
	for _, entry := range entries {
		if name := entry.Name(); sums[name] == "" && name != sumsFile && name != attestations && name != sumsBundle {
			err = errors.Join(err, fmt.Errorf("%s is not part of the release", name))
		}
	}
	r.row("no other files", o.dir, err)
}

// readAttestations returns the statement about all files, and those about SBOMs, if their signatures are valid.
func (o *options) readAttestations(r *report, k dsse.Verifier) (provenance *intoto.Statement, sboms []*intoto.Statement) {
	text, err := os.ReadFile(o.path(attestations))
	envelopes, keyErr := dsse.NewEnvelopeVerifier(k)
	err = errors.Join(err, keyErr)
	for line := range bytes.Lines(text) {
		var envelope dsse.Envelope
		if failed := json.Unmarshal(line, &envelope); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		_, payload, failed := envelopes.VerifyAndDecode(context.Background(), &envelope)
		s := new(intoto.Statement)
		if failed = errors.Join(failed, protojson.Unmarshal(payload, s)); failed != nil {
			err = errors.Join(err, failed)
		} else if s.GetPredicateType() == provenanceType {
			provenance = s
		} else {
			sboms = append(sboms, s)
		}
	}
	r.row("signatures", attestations, err)
	return provenance, sboms
}

// parameter returns a parameter of the build, or "" if the provenance does not contain it.
func parameter(provenance *intoto.Statement, name string) string {
	build := provenance.GetPredicate().GetFields()["buildDefinition"].GetStructValue()
	return build.GetFields()["externalParameters"].GetStructValue().GetFields()[name].GetStringValue()
}

// parameter prints a parameter of the build, and compares it with the expected value. An empty one is not compared, and
// the table says so: the parameter must only exist.
func (r *report) parameter(provenance *intoto.Statement, name, expected string) {
	got, err := parameter(provenance, name), error(nil)
	if got != "" && expected == "" {
		fmt.Fprintf(r.table, "%s\t%s\tnot compared: no %s is given\n", name, got, strings.ToUpper(name))
		return
	}
	if got == "" || got != expected {
		err = fmt.Errorf("the provenance must name the %s %q", name, expected)
	}
	r.row(name, got, err)
}

// sameSubjects compares the subjects of a statement with sums.
func sameSubjects(s *intoto.Statement, sums map[string]string) error {
	got := map[string]string{}
	for _, subject := range s.GetSubject() {
		got[subject.GetName()] = subject.GetDigest()["sha256"]
	}
	if !maps.Equal(got, sums) {
		return fmt.Errorf("a statement about %d files, and not about these %d", len(got), len(sums))
	}
	return nil
}

// verifySBOM finds the statement with an SBOM, and compares the program in it with the file.
func (o *options) verifySBOM(name string, sums map[string]string, statements []*intoto.Statement) error {
	text, err := os.ReadFile(o.path(name))
	if err != nil {
		return err
	}
	subject, err := o.subjectOf(name, sums)
	if err != nil {
		return err
	}
	predicate := new(structpb.Struct)
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return err
	}
	if !slices.ContainsFunc(statements, func(s *intoto.Statement) bool {
		return s.GetPredicateType() == cycloneDXType && sameSubjects(s, subject) == nil && proto.Equal(s.GetPredicate(), predicate)
	}) {
		return fmt.Errorf("no signed statement says this about %v", subject)
	}
	program := strings.Replace(strings.TrimSuffix(name, sbomSuffix), imageSBOMMarker, "-linux-", 1)
	if sums[program] == "" || !bytes.Contains(text, []byte(sums[program])) {
		return fmt.Errorf("it does not contain the sum of %s", program)
	}
	return nil
}

var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: (\S+)$`)

func (o *options) verifyInstall() error {
	text, err := os.ReadFile(o.path("install.yaml"))
	if err != nil {
		return err
	}
	images := imageLine.FindAllStringSubmatch(string(text), -1)
	if len(images) == 0 {
		return errors.New("it names no image")
	}
	for _, image := range images {
		err = errors.Join(err, o.verifyImage(image[1]))
	}
	return err
}

// verifyChart checks the image that the chart uses without values.
func (o *options) verifyChart(name string) error {
	file, err := os.Open(o.path(name))
	if err != nil {
		return err
	}
	defer file.Close()
	packed, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return err
	}
	var chart struct {
		AppVersion  string
		Annotations map[string]string
		Image       struct{ Repository string }
	}
	for r := tar.NewReader(packed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if header.Name == "sluice/Chart.yaml" || header.Name == "sluice/values.yaml" {
			text, err := io.ReadAll(r)
			if err := errors.Join(err, yaml.Unmarshal(text, &chart)); err != nil {
				return fmt.Errorf("%s: %w", header.Name, err)
			}
		}
	}
	image := chart.Image.Repository + ":" + chart.AppVersion
	if digest := chart.Annotations[digestAnnotation]; digest != "" {
		image += "@" + digest
	}
	return o.verifyImage(image)
}

// digestAnnotation is in Chart.yaml of a release for a registry.
const digestAnnotation = "sluice.dev/image-digest"

// verifyImage compares a reference with the archive of its name. The image of a registry has a digest.
func (o *options) verifyImage(image string) error {
	tagged, digest, hasDigest := strings.Cut(image, "@sha256:")
	repository, tag, _ := strings.Cut(tagged[strings.LastIndex(tagged, "/")+1:], ":")
	a, err := readArchive(o.path("sluice-" + tag + ".tar"))
	if err != nil {
		return fmt.Errorf("image %s: %w", image, err)
	}
	switch {
	case a.name != tagged && a.name != "docker.io/"+tagged && a.name != "docker.io/library/"+repository+":"+tag:
		return fmt.Errorf("image %s: the archive contains %s", image, a.name)
	case !hasDigest && strings.Contains(tagged, "/"):
		return fmt.Errorf("image %s: a registry is named without a digest", image)
	case hasDigest && digest != a.digest:
		return fmt.Errorf("image %s: the archive contains sha256:%s", image, a.digest)
	}
	return nil
}
