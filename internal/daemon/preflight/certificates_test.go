// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"github.com/sluice-proxy/sluice/test/testenv"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair writes a certificate that ends at a time, with its key, and returns the paths.
func pair(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-2 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestPreflight_CertificateFiles: files that are missing, do not match or are expired cause a warning that names the
// field and the file.
func TestPreflight_CertificateFiles(t *testing.T) {
	cert, key := pair(t, time.Now().Add(time.Hour))
	_, other := pair(t, time.Now().Add(time.Hour))
	old, oldKey := pair(t, time.Now().Add(-time.Minute))
	for name, c := range map[string]struct {
		cert, key, ca string
		result        Result
		want          string
	}{
		"valid":         {cert, key, cert, OK, "valid until "},
		"missing":       {cert, "/nowhere/tls.key", "", Warn, "SluiceConfiguration.security.keyFile: open /nowhere/tls.key: no such file"},
		"no match":      {cert, other, "", Warn, "private key does not match public key"},
		"expired":       {old, oldKey, "", Warn, "SluiceConfiguration.security.certFile \"" + old + "\": valid from "},
		"no authority":  {cert, key, key, Warn, "contains no certificate in PEM"},
		"one file only": {key, "", "", Warn, "certFile"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPreflight(t, testenv.Settings(t, fmt.Sprintf("security: {certFile: %q, keyFile: %q, clientCAFile: %q}", c.cert, c.key, c.ca)))
			p.certificates()
			if len(p.report.Checks) != 1 || p.report.Checks[0].Result != c.result || !strings.Contains(p.report.Checks[0].Message, c.want) {
				t.Errorf("%+v, want %s %q", p.report.Checks, c.result, c.want)
			}
		})
	}
	p := newPreflight(t)
	if p.certificates(); len(p.report.Checks) != 0 {
		t.Errorf("%+v without a certificate", p.report.Checks)
	}
}
