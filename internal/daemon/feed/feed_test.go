// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/source/kube"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connection returns the effective configuration of the connection to the API server.
func connection(t *testing.T, clientConnection string, words ...string) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config")
	check(t, os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: t}}]
`), 0o600))
	check(t, os.WriteFile(file, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"+
		"clientConnection:\n  kubeconfig: "+kubeconfig+"\n"+clientConnection), 0o600))
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &setup.Options{Flags: config.BindProxy(flags)}
	check(t, flags.Parse(append(words, "--config", file)))
	check(t, o.Load())
	client, err := kube.RESTConfig(API(o))
	check(t, err)
	return client
}

// TestConnection_EveryFieldCounts: every field of clientConnection in the file takes effect in client-go's
// configuration.
func TestConnection_EveryFieldCounts(t *testing.T) {
	plain := connection(t, "")
	if plain.Host != "https://192.0.2.1:6443" || plain.ContentType != kube.Protobuf || plain.AcceptContentTypes != kube.Protobuf+",application/json" ||
		plain.QPS != 5 || plain.Burst != 10 || plain.RateLimiter.QPS() != 5 {
		t.Errorf("by default: %+v", plain)
	}
	for line, changed := range map[string]func(*rest.Config) bool{
		"acceptContentTypes: application/json": func(c *rest.Config) bool {
			return c.AcceptContentTypes == "application/json" && c.ContentType == kube.Protobuf
		},
		"contentType: application/json": func(c *rest.Config) bool { return c.ContentType == "application/json" },
		"qps: 7":                        func(c *rest.Config) bool { return c.QPS == 7 && c.RateLimiter.QPS() == 7 && c.Burst == 10 },
		"qps: -1":                       func(c *rest.Config) bool { return c.QPS == -1 && c.RateLimiter == nil },
		"burst: 9":                      func(c *rest.Config) bool { return c.Burst == 9 && c.QPS == 5 },
	} {
		if got := connection(t, "  "+line+"\n"); !changed(got) {
			t.Errorf("%s: %+v", line, got)
		}
	}
	if got := connection(t, "", "--master", "https://192.0.2.9:443"); got.Host != "https://192.0.2.9:443" {
		t.Errorf("with --master: %s", got.Host)
	}
}
