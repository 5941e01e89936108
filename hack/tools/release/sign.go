// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	bundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	common "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// readKey reads a PEM file, as openssl genpkey and openssl pkey -pubout write it.
func readKey(path string) (dsse.SignerVerifier, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	k, err := signerverifier.LoadKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: name a file of openssl genpkey or openssl pkey -pubout", path, err)
	}
	switch k.KeyType {
	case signerverifier.ED25519KeyType:
		return signerverifier.NewED25519SignerVerifierFromSSLibKey(k)
	case signerverifier.ECDSAKeyType:
		return signerverifier.NewECDSASignerVerifierFromSSLibKey(k)
	}
	return nil, fmt.Errorf("%s: key type %s: must be ed25519 or ecdsa", path, k.KeyType)
}

// signSums writes a sigstore bundle. It names the key, and contains neither a certificate nor an entry of a log.
func (o *options) signSums(signer dsse.SignerVerifier) error {
	sums, err := os.ReadFile(o.path(sumsFile))
	if err != nil {
		return err
	}
	signature, err := signer.Sign(context.Background(), sums)
	if err != nil {
		return err
	}
	id, err := signer.KeyID()
	if err != nil {
		return err
	}
	digest := sha256.Sum256(sums)
	text, err := compact(&bundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &bundle.VerificationMaterial{
			Content: &bundle.VerificationMaterial_PublicKey{PublicKey: &common.PublicKeyIdentifier{Hint: id}}},
		Content: &bundle.Bundle_MessageSignature{MessageSignature: &common.MessageSignature{
			MessageDigest: &common.HashOutput{Algorithm: common.HashAlgorithm_SHA2_256, Digest: digest[:]}, Signature: signature}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(o.path(sumsBundle), append(text, '\n'), 0o644)
}

// verifySums checks that the bundle has a signature of SHA256SUMS.
func (o *options) verifySums(k dsse.Verifier) error {
	sums, err := os.ReadFile(o.path(sumsFile))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(o.path(sumsBundle))
	if err != nil {
		return err
	}
	b := new(bundle.Bundle)
	if err := protojson.Unmarshal(text, b); err != nil {
		return err
	}
	digest := sha256.Sum256(sums)
	if b.GetMediaType() != bundleType || !bytes.Equal(b.GetMessageSignature().GetMessageDigest().GetDigest(), digest[:]) {
		return fmt.Errorf("not a bundle %s of this %s", bundleType, sumsFile)
	}
	if err := k.Verify(context.Background(), sums, b.GetMessageSignature().GetSignature()); err != nil {
		return fmt.Errorf("%s: %w", sumsFile, err)
	}
	return nil
}
