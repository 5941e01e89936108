// SPDX-License-Identifier: Apache-2.0

// Package security protects the metrics address and the inspection address where other hosts reach them. [Certificates]
// are those of a server, and follow their files. [Reviews] asks the API server who a caller is and what the caller may read.
package security

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/cert"

	"github.com/sluice-proxy/sluice/internal/host/watch"
)

// Files are the sources of certificates.
type Files struct {
	// Cert and Key are PEM files; without Key, Cert contains both. Without Cert, the server signs its own certificate.
	Cert, Key string
	// ClientCA contains the authorities of client certificates; empty if clients have none.
	ClientCA string
	// RequireClient rejects clients without a certificate.
	RequireClient bool
	// Name and Address are in a certificate that the server signs itself.
	Name    string
	Address net.IP
}

const (
	// poll is how often files are read without an event.
	poll = 10 * time.Second
	// renewal is the remaining life at which the server replaces a self-signed certificate.
	renewal = 30 * 24 * time.Hour
)

// Certificates are the certificates of one server. Run follows the files until the context ends. After a change that is
// invalid, the last good ones stay.
type Certificates struct {
	*watch.Follower
	files Files
	log   *zap.Logger
	// current is nil until files were valid.
	current atomic.Pointer[tls.Config]

	// The following belongs to the goroutine of Run. loaded is the content of current.
	loaded [][]byte
	// signed is the pair that the server signed itself, and signNext is when it signs the next one.
	signed   [][]byte
	signNext time.Time
	// problem is what was logged last; empty if the files are valid.
	problem string
}

// NewCertificates loads the files. Run reports invalid ones, so that they do not prevent the start.
func NewCertificates(files Files, log *zap.Logger) *Certificates {
	c := &Certificates{files: files, log: log}
	c.Follower = watch.Files(files.names, c.look)
	c.look(time.Now())
	return c
}

// Config returns the configuration of a server. Each handshake uses the certificates of its time. Without
// valid ones, it fails.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if now := c.current.Load(); now != nil {
				return now, nil
			}
			return nil, errors.New("no valid certificate (SluiceConfiguration.security)")
		},
	}
}

// Check loads files as a server does, and returns when the certificate ends.
func Check(files Files, now time.Time) (until time.Time, err error) {
	c := &Certificates{files: files, log: zap.NewNop()}
	content, err := c.read(now)
	if err == nil {
		err = c.load(content)
	}
	if err != nil {
		return time.Time{}, err
	}
	leaf := c.current.Load().Certificates[0].Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		err = fmt.Errorf("SluiceConfiguration.security.certFile %q: valid from %s to %s only", files.Cert,
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return leaf.NotAfter, err
}

func (f *Files) names() []string {
	return slices.DeleteFunc([]string{f.Cert, f.Key, f.ClientCA}, func(name string) bool { return name == "" })
}

// look loads the files if they have changed, and returns when to look again.
func (c *Certificates) look(now time.Time) time.Duration {
	content, err := c.read(now)
	if err == nil && !slices.EqualFunc(content, c.loaded, slices.Equal) {
		err = c.load(content)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if c.BeingWritten(problem, now) {
		return c.Limit
	}
	if problem != "" && problem != c.problem {
		c.log.Warn("cannot load certificates; keeping the last valid ones", zap.Error(err))
	}
	c.problem = problem
	return poll
}

// read returns the contents of certificate, key and authorities.
func (c *Certificates) read(now time.Time) (content [][]byte, err error) {
	if c.files.Cert != "" {
		content, err = readAll([2]string{"certFile", c.files.Cert}, [2]string{"keyFile", cmp.Or(c.files.Key, c.files.Cert)})
	} else {
		content, err = c.sign(now)
	}
	if err != nil || c.files.ClientCA == "" {
		return content, err
	}
	authorities, err := readAll([2]string{"clientCAFile", c.files.ClientCA})
	return slices.Concat(content, authorities), err
}

func readAll(files ...[2]string) (all [][]byte, err error) {
	for _, file := range files {
		text, err := os.ReadFile(file[1])
		if err != nil {
			return nil, fmt.Errorf("SluiceConfiguration.security.%s: %w", file[0], err)
		}
		all = append(all, text)
	}
	return all, nil
}

// sign returns a pair that the server signed itself, a new one if the last one ends soon.
func (c *Certificates) sign(now time.Time) ([][]byte, error) {
	if now.Before(c.signNext) {
		return c.signed, nil
	}
	var addresses []net.IP
	if c.files.Address != nil && !c.files.Address.IsUnspecified() {
		addresses = append(addresses, c.files.Address)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(c.files.Name, addresses, nil)
	if err != nil {
		return nil, fmt.Errorf("SluiceConfiguration.security.selfSigned: %w", err)
	}
	const life = 365 * 24 * time.Hour // set by GenerateSelfSignedCertKey
	c.signed, c.signNext = [][]byte{certificate, key}, now.Add(life-renewal)
	return c.signed, nil
}

// load makes contents the current ones if they are valid.
func (c *Certificates) load(content [][]byte) error {
	pair, err := tls.X509KeyPair(content[0], content[1])
	if err != nil {
		return fmt.Errorf("SluiceConfiguration.security.certFile %q, keyFile %q: %w", c.files.Cert, c.files.Key, err)
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if len(content) > 2 {
		next.ClientCAs, next.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if !next.ClientCAs.AppendCertsFromPEM(content[2]) {
			return fmt.Errorf("SluiceConfiguration.security.clientCAFile %q: contains no certificate in PEM", c.files.ClientCA)
		}
		if c.files.RequireClient {
			next.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	c.current.Store(next)
	c.loaded = content
	c.log.Info("certificates loaded", zap.Time("notAfter", pair.Leaf.NotAfter))
	return nil
}
