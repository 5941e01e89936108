// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelMetricsAddress_Secured: with security on, other hosts get metrics by HTTPS and with a token that may read
// them; on a loopback address, and with security off, the metrics address behaves as in kube-proxy. A changed file
// applies.
func TestKernelMetricsAddress_Secured(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	const node = "192.0.2.1"
	out, err := exec.Command("ip", "address", "add", node+"/32", "dev", "lo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	api, err := apitest.New(net.Listen)
	check(t, err)
	defer api.Stop() // the process ends
	api.Set(apitest.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "demo"}})
	api.Grant("scraper", "prometheus", func(a *authorizationv1.NonResourceAttributes) bool {
		return a.Verb == "get" && (a.Path == "/metrics" || a.Path == "/node/healthz")
	})
	api.Grant("fleet", "fleet", func(a *authorizationv1.NonResourceAttributes) bool { return a.Path == inspect.PathStatus }, inspect.TokenAudience)
	file := filepath.Join(t.TempDir(), "config.yaml")
	configure := func(address, security string) {
		text := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
metricsBindAddress: %s
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
---
apiVersion: sluice.dev/v1alpha1
kind: SluiceConfiguration
security: %s
`, address, security)
		check(t, os.WriteFile(file+".new", []byte(text), 0o600))
		check(t, os.Rename(file+".new", file))
	}
	configure(node+":10249", "{selfSigned: true}")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindProxy(flags)}}
	check(t, flags.Parse([]string{"--config", file, "--hostname-override=demo", testenv.Settings(t, "log: {level: error}"), "--master=http://" + api.Address(),
		"--sluice-state-dir", t.TempDir(), testenv.Settings(t, "inspection: {bindAddress: "+node+":10253}")}))
	check(t, o.Load())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, feed.Cluster) }()

	awaitAnswer(t, "https://"+node+":10249/metrics", "scraper", 200, "sluice_build_info")
	awaitAnswer(t, "https://"+node+":10249/metrics", "", 401, "send a token")
	awaitAnswer(t, "https://"+node+":10249/configz", "scraper", 403, "no permission")
	awaitAnswer(t, "https://"+node+":10249/healthz", "", 200, "ok")
	awaitAnswer(t, "https://"+node+":10249/node/healthz?verbose", "", 401, "")
	awaitAnswer(t, "https://"+node+":10249/node/healthz?verbose", "scraper", 200, "Services: 0 applied")
	awaitAnswer(t, "http://"+node+":10249/metrics", "scraper", 400, "HTTPS")
	awaitAnswer(t, "http://"+node+":10256/healthz", "", 200, "lastUpdated")
	awaitAnswer(t, "http://"+node+":10256/healthz?verbose", "scraper", 403, "/node/healthz?verbose")
	awaitAnswer(t, "http://127.0.0.1:10256/healthz?verbose", "", 200, "node: eligible")
	awaitAnswer(t, "http://"+node+":10253"+inspect.PathStatus, "", 200, "\"node\":\"demo\"")
	configure("127.0.0.1:10249", "{inspection: true}")
	awaitAnswer(t, "https://"+node+":10253"+inspect.PathStatus, "fleet", 200, "\"node\":\"demo\"")
	awaitAnswer(t, "https://"+node+":10253"+inspect.PathStatus, "", 401, "send a token of the cluster (Sluice-Authorization: Bearer)")
	awaitAnswer(t, "https://"+node+":10253"+inspect.PathStatus, "scraper", 401, "does not accept the token") // its audience is the API server
	awaitAnswer(t, "https://"+node+":10253"+inspect.PathServices, "fleet", 403, "no permission")
	awaitAnswer(t, "http://"+node+":10253"+inspect.PathStatus, "fleet", 400, "HTTPS")
	awaitAnswer(t, "http://127.0.0.1:10249/metrics", "", 200, `sluice_refused_requests_total{address="inspection",reason="forbidden"} 1`)
	configure("127.0.0.1:10249", "{selfSigned: true}")
	awaitAnswer(t, "http://127.0.0.1:10249/metrics", "", 200, "sluice_build_info")
	awaitAnswer(t, "http://"+node+":10256/healthz?verbose", "", 403, "/node/healthz?verbose")
	configure(node+":10249", "{}")
	awaitAnswer(t, "http://"+node+":10249/metrics", "", 200, "sluice_build_info")
	awaitAnswer(t, "http://"+node+":10256/healthz?verbose", "", 200, "node: eligible")
	cancel()
	check(t, <-ended)
}

// awaitAnswer waits until an address answers a caller with a status and a text. The request comes from the address that it
// goes to.
func awaitAnswer(t *testing.T, url, token string, code int, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is self-signed
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	check(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set(inspect.TokenHeader, "Bearer "+token)
	}
	var last string
	for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		answer, err := client.Do(request)
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil && answer.StatusCode == code && strings.Contains(string(body), text) {
			return
		}
		last = fmt.Sprintf("%d %.300q %v", answer.StatusCode, body, err)
	}
	t.Fatalf("%s with token %q: want %d %q; the last answer: %s", url, token, code, text, last)
}
