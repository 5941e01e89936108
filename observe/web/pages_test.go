// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// site has every page.
func site() Pages {
	return Pages{
		Mode:     "nftables",
		Metrics:  plain("the metrics"),
		Services: plain("the Services"),
		Configz: func() map[string]any {
			return map[string]any{"kubeproxy.config.k8s.io": map[string]string{"kind": "KubeProxyConfiguration"}}
		},
		Flagz:   func() map[string]string { return map[string]string{"v": "2", "proxy-mode": "nftables"} },
		Statusz: &Program{Started: time.Now().Add(-90 * time.Second), Version: "1.37.2", Own: "v0.9"},
		SetVerbosity: func(text string) (string, error) {
			if text != "4" {
				return "", fmt.Errorf("%q: must be a number", text)
			}
			return "verbosity is 4", nil
		},
		Profiling: true,
	}
}

// request is a request and the answer that it must get.
type request struct {
	method, path, body string
	accept             string
	code               int
	mediaType          string // empty: any
	text               string // part of the body, or all of it if exact
	exact              bool
}

func testRequests(t *testing.T, pages Pages, requests []request) {
	t.Helper()
	handler := pages.Handler()
	for _, r := range requests {
		if r.method == "" {
			r.method = http.MethodGet
		}
		asked := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
		asked.Header.Set("Accept", r.accept)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, asked)
		got := answer.Body.String()
		if answer.Code != r.code || (r.exact && got != r.text) || !strings.Contains(got, r.text) {
			t.Errorf("%s %s: %d %q, want %d %q", r.method, r.path, answer.Code, got, r.code, r.text)
		}
		if mediaType := answer.Header().Get("Content-Type"); r.mediaType != "" && mediaType != r.mediaType {
			t.Errorf("%s %s: content type %q, want %q", r.method, r.path, mediaType, r.mediaType)
		}
		if r.mediaType != "" && r.code == http.StatusOK && answer.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: X-Content-Type-Options is not nosniff", r.method, r.path)
		}
	}
}

func TestPages_EveryPage(t *testing.T) {
	testRequests(t, site(), []request{
		{path: "/healthz", code: 200, mediaType: Text, text: "ok", exact: true},
		{path: "/healthz?verbose", code: 200, mediaType: Text, text: "[+]ping ok\nhealthz check passed\n", exact: true},
		{path: "/healthz/ping", code: 200, text: "ok", exact: true},
		{method: "POST", path: "/healthz", code: 200, text: "ok", exact: true},
		{path: "/livez", code: 404},
		{path: "/proxyMode", code: 200, mediaType: Text, text: "nftables", exact: true},
		{path: "/metrics", code: 200, text: "the metrics", exact: true},
		{path: "/metrics/services?top=3", code: 200, text: "the Services", exact: true},
		{path: "/metrics/elsewhere", code: 404},
		{path: "/configz", code: 200, mediaType: JSON, text: `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"}}`, exact: true},
		{path: "/flagz", code: 200, mediaType: Text, text: "proxy-mode=nftables\nv=2\n"},
		{path: "/statusz", code: 200, mediaType: Text, text: "Binary version: 1.37.2\nSluice version: v0.9\nPaths: /configz /flagz /healthz /metrics /proxyMode\n"},
		{path: "/", code: 404},
	})
}

// TestPages_Profiling: the pages of profiling and flags answer if profiling is enabled, and do not exist otherwise.
func TestPages_Profiling(t *testing.T) {
	requests := []request{
		{path: "/debug/pprof", code: 302, text: "/debug/pprof/"},
		{path: "/debug/pprof/", code: 200, text: "goroutine"},
		{path: "/debug/pprof/goroutine?debug=1", code: 200, text: "goroutine profile:"},
		{path: "/debug/pprof/symbol", code: 200, text: "num_symbols"},
		{path: "/debug/pprof/profile?seconds=1", code: 200},
		{path: "/debug/flags", code: 200, text: "/debug/flags/v"},
		{path: "/debug/flags/", code: 200, text: "/debug/flags/v"},
		{path: "/debug/flags/v", code: 406},
		{method: "PUT", path: "/debug/flags/v", body: "4", code: 200, mediaType: "text/plain", text: "verbosity is 4\n", exact: true},
		{method: "PUT", path: "/debug/flags/v", body: "much", code: 400, text: `"much": must be a number`},
	}
	testRequests(t, site(), requests)
	without := site()
	without.Profiling = false
	for i := range requests {
		requests[i].code, requests[i].mediaType, requests[i].text, requests[i].exact = 404, "", "", false
	}
	testRequests(t, without, requests)
}

// TestPages_NotConfigured: pages that are not configured do not exist.
func TestPages_NotConfigured(t *testing.T) {
	testRequests(t, Pages{Mode: "iptables", Profiling: true}, []request{
		{path: "/healthz", code: 200}, {path: "/proxyMode", code: 200, text: "iptables", exact: true},
		{path: "/metrics", code: 404}, {path: "/metrics/services", code: 404}, {path: "/configz", code: 404},
		{path: "/flagz", code: 404}, {path: "/statusz", code: 404}, {path: "/debug/flags/v", code: 404}, {path: "/debug/pprof/", code: 200},
	})
}

// TestPages_UnencodableConfigurationIsError: a configuration that cannot be encoded is an error of the server.
func TestPages_UnencodableConfigurationIsError(t *testing.T) {
	c := site()
	c.Configz = func() map[string]any { return map[string]any{"x": make(chan int)} }
	testRequests(t, c, []request{
		{path: "/configz", code: 500, text: "cannot show the configuration"},
	})
}

func TestPages_SLIs(t *testing.T) {
	testRequests(t, site(), []request{
		{path: "/healthz", code: 200},
		{path: "/metrics/slis", code: 200, text: `kubernetes_healthcheck{name="ping",type="healthz"} 1`},
		{path: "/metrics/slis", code: 200, text: `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} `},
		{method: "DELETE", path: "/metrics/slis", code: 200, text: "metrics reset\n", exact: true},
	})
	answer := httptest.NewRecorder()
	site().Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics/slis", nil))
	if strings.Contains(answer.Body.String(), "kubernetes_healthcheck{") {
		t.Errorf("not reset: %s", answer.Body)
	}
}

// TestPages_NonReadingClientsHoldFewAnswers: only a few clients hold a big answer at a time. Others are rejected, or
// get theirs as soon as one has ended.
func TestPages_NonReadingClientsHoldFewAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		var making, most atomic.Int32
		pages := Pages{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			most.Store(max(most.Load(), making.Add(1)))
			<-read
			making.Add(-1)
		})}
		site := pages.Handler()
		codes := make(chan int, 100)
		ask := func() {
			answer := httptest.NewRecorder()
			site.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			codes <- answer.Code
		}
		for range 20 {
			go ask()
		}
		time.Sleep(fewPatience + time.Second)
		if n := making.Load(); n != fewMax || len(codes) != 20-fewMax {
			t.Fatalf("%d answers at a time, want %d; %d clients were refused", n, fewMax, len(codes))
		}
		for range 20 - fewMax {
			if code := <-codes; code != http.StatusServiceUnavailable {
				t.Errorf("status %d", code)
			}
		}
		go ask()
		time.Sleep(fewPatience / 2)
		close(read)
		synctest.Wait()
		for range fewMax + 1 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("status %d", code)
			}
		}
		if n := most.Load(); n != fewMax {
			t.Errorf("%d answers at a time", n)
		}
	})
}
