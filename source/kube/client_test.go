// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: t}}]
`

func TestRESTConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := RESTConfig(Config{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "https://192.0.2.1:6443" || got.BearerToken != "t" {
		t.Errorf("server %q and token %q, want those of the kubeconfig", got.Host, got.BearerToken)
	}
	if got.ContentType != Protobuf || got.AcceptContentTypes != Protobuf+",application/json" {
		t.Errorf("content type %q, accepting %q", got.ContentType, got.AcceptContentTypes)
	}

	got, err = RESTConfig(Config{Kubeconfig: path, ContentType: "application/json", AcceptContentTypes: Protobuf, QPS: 0.5, Burst: 3})
	if err != nil {
		t.Fatal(err)
	}
	if got.ContentType != "application/json" || got.AcceptContentTypes != Protobuf {
		t.Errorf("content type %q, accepting %q", got.ContentType, got.AcceptContentTypes)
	}
	if got.QPS != 0.5 || got.Burst != 3 || got.RateLimiter.QPS() != 0.5 {
		t.Errorf("bounds are %v, %d and %v", got.QPS, got.Burst, got.RateLimiter.QPS())
	}

	got, err = RESTConfig(Config{Kubeconfig: path, Master: "https://192.0.2.9:443", QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "https://192.0.2.9:443" || got.RateLimiter != nil {
		t.Errorf("server %q and limiter %v, want the override and none", got.Host, got.RateLimiter)
	}
}

// TestRESTConfig_ErrorNamesCause: the error of RESTConfig names the missing kubeconfig file, or the in-cluster
// configuration that was tried.
func TestRESTConfig_ErrorNamesCause(t *testing.T) {
	_, err := RESTConfig(Config{Kubeconfig: "/nonexistent/kubeconfig"})
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/kubeconfig") {
		t.Errorf("error is %v, want one that names the file", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := RESTConfig(Config{}); err == nil || !strings.Contains(err.Error(), "in-cluster") {
		t.Errorf("error is %v, want one that says what was tried", err)
	}
}

// TestNewForREST_NeedsNodeName: NewForREST returns an error without a node name.
func TestNewForREST_NeedsNodeName(t *testing.T) {
	cache := source.NewCache(sourcetest.NewRecorder(), source.Options{})
	_, err := NewForREST(Config{}, &rest.Config{Host: "http://192.0.2.1"}, cache, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "node name") {
		t.Errorf("error is %v", err)
	}
}
