// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestTraffic_CountsLosses: Stop returns an error if exchanges were lost. (netnstest tests the load itself.)
func TestTraffic_CountsLosses(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	b, err := netnstest.StartBackend(host.Namespace, "b", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		traffic, err := StartTraffic(t.Context(), host, targets(b.Addr())...)
		if err != nil {
			t.Fatal(err)
		}
		if lost {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		exchanges, err := traffic.Stop()
		if lost != (err != nil && strings.Contains(err.Error(), "exchanges failed")) || !lost && exchanges < 6 {
			t.Errorf("lost %v: %d exchanges, %v", lost, exchanges, err)
		}
	}
}

// TestGet_ReturnsAnyAnswer: Get returns an answer with any status. Only silence and rejections are errors.
func TestGet_ReturnsAnyAnswer(t *testing.T) {
	host := &Host{Namespace: netnstest.New(t, "n")}
	listener, err := host.Listen("tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Asked", r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "not now")
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	page, err := host.Get(t.Context(), "http://127.0.0.1:80/path")
	if err != nil || page.Status != http.StatusServiceUnavailable || page.Body != "not now" || page.Header.Get("X-Asked") != "GET /path" {
		t.Errorf("%+v, %v", page, err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if page, err := host.Get(t.Context(), "http://127.0.0.1:80/path"); err == nil {
		t.Errorf("%+v from a server that is gone", page)
	}
}
