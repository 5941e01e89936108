// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/package-url/packageurl-go"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	repository      = "https://github.com/sluice-proxy/sluice"
	buildType       = repository + "/blob/main/docs/building.md#releases"
	provenanceType  = "https://slsa.dev/provenance/v1"
	cycloneDXType   = "https://cyclonedx.org/bom"
	payloadType     = "application/vnd.in-toto+json"
	sbomSuffix      = ".cdx.json"
	imageSBOMMarker = "-image-" // sluice-VERSION-image-ARCH.cdx.json is about a part of the image
)

// attest writes the attestations, and with a key their signatures and that of SHA256SUMS.
func (o *options) attest(to io.Writer) error {
	sums, err := o.sums()
	if err != nil {
		return err
	}
	statement, err := o.provenance(sums)
	if err != nil {
		return err
	}
	statements := []*intoto.Statement{statement}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if !strings.HasSuffix(name, sbomSuffix) {
			continue
		}
		if statement, err = o.sbom(name, sums); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		statements = append(statements, statement)
	}
	var signer dsse.SignerVerifier
	if o.key != "" {
		if signer, err = readKey(o.key); err != nil {
			return err
		}
	}
	var lines bytes.Buffer
	for _, statement := range statements {
		envelope, err := sealed(statement, signer)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(&lines).Encode(envelope); err != nil {
			return err
		}
	}
	if err := os.WriteFile(o.path(attestations), lines.Bytes(), 0o644); err != nil {
		return err
	}
	if signer == nil {
		fmt.Fprintf(to, "release: NOT SIGNED: %d attestations of %d files without a signature; name a key with SIGNING_KEY\n", len(statements), len(sums))
		return nil
	}
	fmt.Fprintf(to, "release: %d attestations of %d files, signed\n", len(statements), len(sums))
	return o.signSums(signer)
}

// provenance is about all files in SHA256SUMS.
func (o *options) provenance(sums map[string]string) (*intoto.Statement, error) {
	parameters, err := structpb.NewStruct(map[string]any{
		"version": o.version, "commit": o.commit, "repository": repository, "image": o.image})
	if err != nil {
		return nil, err
	}
	dependencies := []*intoto.ResourceDescriptor{
		{Uri: "git+" + repository + "@" + o.commit, Digest: map[string]string{"gitCommit": o.commit}},
		{Uri: packageurl.NewPackageURL(packageurl.TypeGolang, "", "stdlib", strings.TrimPrefix(o.goVersion, "go"), nil, "").ToString()},
	}
	packages, err := debianPackages(o.packages)
	if err != nil {
		return nil, err
	}
	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: parameters, ResolvedDependencies: append(dependencies, packages...)},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: o.builder}},
	}
	if err := predicate.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	return newStatement(provenanceType, text, sums)
}

// debianPackages returns the packages in lists whose lines begin with name, version and architecture.
func debianPackages(lists string) (all []*intoto.ResourceDescriptor, err error) {
	seen := map[string]bool{}
	for path := range strings.SplitSeq(lists, ",") {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 3 {
				return nil, fmt.Errorf("%s: %q: must have at least 3 words", path, line)
			}
			qualifiers := packageurl.QualifiersFromMap(map[string]string{"arch": words[2], "distro": "debian-12"})
			seen[packageurl.NewPackageURL(packageurl.TypeDebian, "debian", words[0], words[1], qualifiers, "").ToString()] = true
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(seen)) {
		all = append(all, &intoto.ResourceDescriptor{Uri: uri})
	}
	return all, nil
}

// sbom is about the file, or the part of the image, that an SBOM describes.
func (o *options) sbom(name string, sums map[string]string) (*intoto.Statement, error) {
	text, err := os.ReadFile(o.path(name))
	if err != nil {
		return nil, err
	}
	subject, err := o.subjectOf(name, sums)
	if err != nil {
		return nil, err
	}
	return newStatement(cycloneDXType, text, subject)
}

// subjectOf returns the name and the sum of what an SBOM describes.
func (o *options) subjectOf(name string, sums map[string]string) (map[string]string, error) {
	about := strings.TrimSuffix(name, sbomSuffix)
	image, arch, found := strings.Cut(about, imageSBOMMarker)
	if found {
		archive, err := readArchive(o.path(image + ".tar"))
		if err != nil {
			return nil, err
		}
		if archive.parts[arch] == "" {
			return nil, fmt.Errorf("%s.tar has no image for %s", image, arch)
		}
		return map[string]string{archive.name + "#linux/" + arch: archive.parts[arch]}, nil
	}
	if sums[about] == "" {
		return nil, fmt.Errorf("%s does not contain %s", sumsFile, about)
	}
	return map[string]string{about: sums[about]}, nil
}

// newStatement makes a statement about subjects, with a predicate in JSON.
func newStatement(kind string, predicate []byte, subjects map[string]string) (*intoto.Statement, error) {
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: kind, Predicate: new(structpb.Struct)}
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		s.Subject = append(s.Subject, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": subjects[name]}})
	}
	if err := protojson.Unmarshal(predicate, s.Predicate); err != nil {
		return nil, err
	}
	return s, s.Validate()
}

// sealed returns the envelope of a statement, without a signature if there is no signer.
func sealed(s *intoto.Statement, signer dsse.SignerVerifier) (*dsse.Envelope, error) {
	text, err := compact(s)
	if err != nil {
		return nil, err
	}
	if signer == nil {
		return &dsse.Envelope{PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(text), Signatures: []dsse.Signature{}}, nil
	}
	envelopes, err := dsse.NewEnvelopeSigner(signer)
	if err != nil {
		return nil, err
	}
	return envelopes.SignPayload(context.Background(), payloadType, text)
}

// compact returns JSON without the spaces that protojson varies.
func compact(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, text)
	return out.Bytes(), err
}
