// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

var server = netip.MustParseAddrPort("10.0.0.2:6443")

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func prepare(t *testing.T, dir string) Files {
	t.Helper()
	files, err := Prepare(dir, server, []string{"n1", "n2"}, netip.MustParseAddr("172.30.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPrepare_ServingCertificateTrusted: the serving certificate is trusted by the authority in the CA file.
func TestPrepare_ServingCertificateTrusted(t *testing.T) {
	f := prepare(t, t.TempDir())
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read(t, f.CA)) {
		t.Fatal("the authority file holds no certificate")
	}
	block, _ := pem.Decode(read(t, f.ServingCert))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10.0.0.2", "172.30.0.1", "127.0.0.1", "[::1]", "kubernetes.default.svc"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("certificate for %s: %v", name, err)
		}
	}
}

// TestPrepare_KubeconfigServerAndUser: each kubeconfig names the server and its user.
func TestPrepare_KubeconfigServerAndUser(t *testing.T) {
	f := prepare(t, t.TempDir())
	tokens := string(read(t, f.Tokens))
	for path, wantUser := range map[string]string{
		f.AdminKubeconfig: "e2e-admin", f.ProxyKubeconfig: "system:kube-proxy", f.NodeKubeconfigs[0]: "system:node:n1",
		f.NodeKubeconfigs[1]:    "system:node:n2",
		f.ControllersKubeconfig: "system:kube-controller-manager", f.SchedulerKubeconfig: "system:kube-scheduler",
	} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != "https://10.0.0.2:6443" {
			t.Errorf("%s: server %s", path, config.Host)
		}
		if config.BearerToken == "" || !strings.Contains(tokens, config.BearerToken+","+wantUser+",") {
			t.Errorf("%s: its token is not that of %s in %s", path, wantUser, f.Tokens)
		}
	}
}

// TestPrepare_AgainKeepsClientFiles: a second Prepare keeps the clients' files, so clients keep their kubeconfig when
// the server restarts.
func TestPrepare_AgainKeepsClientFiles(t *testing.T) {
	dir := t.TempDir()
	f := prepare(t, dir)
	before := make(map[string]string)
	for _, path := range []string{f.CA, f.ServiceAccountKey, f.Tokens, f.AdminKubeconfig, f.ProxyKubeconfig} {
		before[path] = string(read(t, path))
	}
	prepare(t, dir)
	for path, want := range before {
		if string(read(t, path)) != want {
			t.Errorf("%s changed", path)
		}
	}
}

// TestPrepare_DamagedFileNamed: the error about a damaged file names it.
func TestPrepare_DamagedFileNamed(t *testing.T) {
	dir := t.TempDir()
	f := prepare(t, dir)
	for _, path := range []string{f.CA, f.ServiceAccountKey, f.Tokens} {
		good := read(t, path)
		if err := os.WriteFile(path, []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Prepare(dir, server, []string{"n1", "n2"}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Prepare with a damaged %s: %v, want an error that names it", path, err)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
