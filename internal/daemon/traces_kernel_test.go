// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelTraces_ServiceCreated: a process exports the spans of a Service that is created, and a receiver that hangs
// does not delay its end.
func TestKernelTraces_ServiceCreated(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	api, err := apitest.New(net.Listen)
	check(t, err)
	defer api.Stop() // the process ends
	api.Set(apitest.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "demo"}})
	bodies, hang := make(chan []byte, 100), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- body
		<-hang
	}))
	defer receiver.Close()
	defer close(hang)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := &Options{Options: setup.Options{Flags: config.BindProxy(flags)}}
	check(t, flags.Parse([]string{"--proxy-mode=nftables", "--hostname-override=demo", testenv.Settings(t, "log: {level: error}"), "--master=http://" + api.Address(),
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		"--sluice-state-dir", t.TempDir(), testenv.Settings(t, "tracing: {endpoint: "+receiver.URL+", samplingRatePerMillion: 1000000}")}))
	check(t, o.Load())
	ctx, cancel := context.WithCancel(t.Context())
	synced := make(chan struct{})
	o.FirstSync = func(config.Mode) { close(synced) }
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, feed.Cluster) }()
	<-synced
	api.Set(apitest.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}}})
	select {
	case body := <-bodies:
		for _, want := range []string{"k8s.service.name", "web", "kernel", "nftables"} {
			if !bytes.Contains(body, []byte(want)) {
				t.Errorf("no %q in %q", want, body)
			}
		}
	case <-time.After(testenv.Patience):
		t.Fatal("no spans arrive")
	}
	cancel()
	check(t, <-ended) // although the receiver hangs
}
