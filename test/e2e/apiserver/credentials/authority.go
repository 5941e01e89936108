// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// validity is how long certificates last. They are test data and never renewed.
const validity = 10 * 365 * 24 * time.Hour

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openAuthority reads the authority kept in two files, or makes it.
func openAuthority(certFile, keyFile string) (*authority, error) {
	key, err := openKey(keyFile)
	if err != nil {
		return nil, err
	}
	encoded, err := keep(certFile, func() ([]byte, error) {
		template, err := newTemplate("e2e-ca")
		if err != nil {
			return nil, err
		}
		template.IsCA = true
		template.BasicConstraintsValid = true
		template.KeyUsage = x509.KeyUsageCertSign
		return sign(template, template, key, key)
	})
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(encoded)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block; remove the folder to start over", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove the folder to start over", certFile, err)
	}
	return &authority{cert: cert, key: key}, nil
}

// issue writes a new serving certificate for the addresses, and for this machine's own. The server
// also shows it to kubelets, as their client.
func (a *authority) issue(certFile, keyFile string, addrs []netip.Addr) error {
	key, err := openKey(keyFile)
	if err != nil {
		return err
	}
	template, err := newTemplate("kube-apiserver")
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, addr := range addrs {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	}
	encoded, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return fmt.Errorf("%s: %w", certFile, err)
	}
	return replace(certFile, encoded)
}

func newTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // a clock set back a little is no reason to fail
		NotAfter:     now.Add(validity),
	}, nil
}

// sign returns the certificate for key, PEM encoded.
func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// openKey reads the private key kept in a file, or makes it.
func openKey(path string) (*ecdsa.PrivateKey, error) {
	encoded, err := keep(path, func() ([]byte, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, err
		}
		return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
	})
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(encoded)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block; remove the folder to start over", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove the folder to start over", path, err)
	}
	return key, nil
}
