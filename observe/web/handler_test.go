package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

// site is a configuration with every page.
func site() Config {
	return Config{
		Address: "127.0.0.1:0", Mode: "nftables",
		Metrics:  plain("the metrics"),
		Services: plain("the Services"),
		Configz: func() map[string]any {
			return map[string]any{"kubeproxy.config.k8s.io": map[string]string{"kind": "KubeProxyConfiguration"}}
		},
		Flagz:   func() map[string]string { return map[string]string{"v": "2", "proxy-mode": "nftables"} },
		Statusz: &Program{Started: time.Now().Add(-90 * time.Second), Version: "1.36.3"},
		Actors:  func(limit int) any { return map[string]int{"limit": limit} },
		SetVerbosity: func(text string) (string, error) {
			if text != "4" {
				return "", fmt.Errorf("%q: want a number", text)
			}
			return "verbosity is 4", nil
		},
		Profiling: true,
	}
}

// request is what is asked of a site, and how it is to answer.
type request struct {
	method, path, body string
	accept             string
	code               int
	mediaType          string // nothing is expected of it when empty
	text               string // a part of the body, all of it when exact
	exact              bool
}

func testRequests(t *testing.T, c Config, requests []request) {
	t.Helper()
	handler := newHandler(c)
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
			t.Errorf("%s %s: may be sniffed", r.method, r.path)
		}
	}
}

const utf8 = "text/plain; charset=utf-8"

func TestEveryPage(t *testing.T) {
	testRequests(t, site(), []request{
		{path: "/healthz", code: 200, mediaType: utf8, text: "ok", exact: true},
		{path: "/healthz?verbose", code: 200, mediaType: utf8, text: "[+]ping ok\nhealthz check passed\n", exact: true},
		{path: "/healthz/ping", code: 200, text: "ok", exact: true},
		{method: "POST", path: "/healthz", code: 200, text: "ok", exact: true},
		{path: "/livez", code: 404},
		{path: "/proxyMode", code: 200, mediaType: utf8, text: "nftables", exact: true},
		{path: "/metrics", code: 200, text: "the metrics", exact: true},
		{path: "/metrics/services?top=3", code: 200, text: "the Services", exact: true},
		{path: "/metrics/elsewhere", code: 404},
		{path: "/configz", code: 200, mediaType: mediaJSON, text: `{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration"}}`, exact: true},
		{path: "/flagz", code: 200, mediaType: utf8, text: "proxy-mode=nftables\nv=2\n"},
		{path: "/statusz", code: 200, mediaType: utf8, text: "Binary version: 1.36.3\nPaths: /configz /flagz /healthz /metrics /proxyMode\n"},
		{path: "/debug/actors", code: 200, mediaType: mediaJSON, text: "{\n  \"limit\": 100\n}\n", exact: true},
		{path: "/debug/actors?limit=7", code: 200, text: `"limit": 7`},
		{path: "/debug/actors?limit=0", code: 200, text: `"limit": 0`},
		{path: "/debug/actors?limit=all", code: 400, text: `parameter "limit": "all"`},
		{path: "/debug/actors?limit=-1", code: 400, text: `parameter "limit": "-1"`},
		{path: "/", code: 404},
	})
}

func TestPagesOfProfiling(t *testing.T) {
	requests := []request{
		{path: "/debug/pprof", code: 302, text: "/debug/pprof/"},
		{path: "/debug/pprof/", code: 200, text: "goroutine"},
		{path: "/debug/pprof/goroutine?debug=1", code: 200, text: "goroutine profile:"},
		{path: "/debug/pprof/symbol", code: 200, text: "num_symbols"},
		{path: "/debug/pprof/profile?seconds=1", code: 200},
		{path: "/debug/pprof/trace?seconds=1", code: 200},
		{path: "/debug/flags", code: 200, text: "/debug/flags/v"},
		{path: "/debug/flags/", code: 200, text: "/debug/flags/v"},
		{path: "/debug/flags/v", code: 406},
		{method: "PUT", path: "/debug/flags/v", body: "4", code: 200, mediaType: "text/plain", text: "verbosity is 4\n", exact: true},
		{method: "PUT", path: "/debug/flags/v", body: "much", code: 400, text: `"much": want a number`},
	}
	testRequests(t, site(), requests)
	without := site()
	without.Profiling = false
	for i := range requests {
		requests[i].code, requests[i].mediaType, requests[i].text, requests[i].exact = 404, "", "", false
	}
	testRequests(t, without, requests)
}

func TestPagesThatAreNotWantedAreNotThere(t *testing.T) {
	testRequests(t, Config{Address: "127.0.0.1:0", Mode: "iptables", Profiling: true}, []request{
		{path: "/healthz", code: 200}, {path: "/proxyMode", code: 200, text: "iptables", exact: true},
		{path: "/metrics", code: 404}, {path: "/metrics/services", code: 404}, {path: "/configz", code: 404},
		{path: "/flagz", code: 404}, {path: "/statusz", code: 404}, {path: "/debug/actors", code: 404},
		{path: "/debug/flags/v", code: 404}, {path: "/debug/pprof/", code: 200},
	})
}

func TestWhatCannotBeShownIsSaid(t *testing.T) {
	c := site()
	c.Configz = func() map[string]any { return map[string]any{"x": make(chan int)} }
	c.Actors = func(int) any { return make(chan int) }
	testRequests(t, c, []request{
		{path: "/configz", code: 500, text: "the configuration cannot be shown"},
		{path: "/debug/actors", code: 500, text: "the report cannot be shown"},
	})
}

const asFlagz = ";as=Flagz;g=config.k8s.io;v="

func TestZPagesForPrograms(t *testing.T) {
	testRequests(t, site(), []request{
		{path: "/flagz", accept: mediaJSON + asFlagz + zVersion, code: 200, mediaType: mediaJSON,
			text: `{"apiVersion":"config.k8s.io/v1beta1","flags":{"proxy-mode":"nftables","v":"2"},"kind":"Flagz","metadata":{"name":"kube-proxy"}}`, exact: true},
		{path: "/flagz", accept: mediaYAML + asFlagz + zDeprecated, code: 200, mediaType: mediaYAML,
			text: "apiVersion: config.k8s.io/v1alpha1\nflags:\n  proxy-mode: nftables\n  v: \"2\"\nkind: Flagz\nmetadata:\n  name: kube-proxy\n", exact: true},
		{path: "/flagz", accept: mediaJSON, code: 406, text: "as=Flagz"},
		{path: "/flagz", accept: "application/json;as=Statusz;g=config.k8s.io;v=v1beta1", code: 406},
		{path: "/flagz", accept: "*/*", code: 200, mediaType: utf8},
	})
	handler := newHandler(site())
	ask := httptest.NewRequest(http.MethodGet, "/statusz", nil)
	ask.Header.Set("Accept", "application/json;as=Statusz;g=config.k8s.io;v=v1alpha1, text/plain;q=0.5")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, ask)
	var object struct {
		Kind, APIVersion, GoVersion, BinaryVersion string
		StartTime                                  time.Time
		UptimeSeconds                              int
		Paths                                      []string
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	if object.Kind != "Statusz" || object.APIVersion != "config.k8s.io/v1alpha1" || object.BinaryVersion != "1.36.3" ||
		object.UptimeSeconds < 90 || object.StartTime.IsZero() || !strings.HasPrefix(object.GoVersion, "go1.") || len(object.Paths) != 5 {
		t.Errorf("got %s", answer.Body)
	}
	if got := answer.Header().Get("Warning"); !strings.Contains(got, "299") || !strings.Contains(got, "deprecated") {
		t.Errorf("warning %q", got)
	}
}

func TestSLIs(t *testing.T) {
	testRequests(t, site(), []request{
		{path: "/healthz", code: 200},
		{path: "/metrics/slis", code: 200, text: `kubernetes_healthcheck{name="ping",type="healthz"} 1`},
		{path: "/metrics/slis", code: 200, text: `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} `},
		{method: "DELETE", path: "/metrics/slis", code: 200, text: "metrics reset\n", exact: true},
	})
	answer := httptest.NewRecorder()
	newHandler(site()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics/slis", nil))
	if strings.Contains(answer.Body.String(), "kubernetes_healthcheck{") {
		t.Errorf("not reset: %s", answer.Body)
	}
}

func TestNegotiate(t *testing.T) {
	structured := form{mediaJSON, zVersion}
	for header, want := range map[string]form{
		"":    {mediaText, ""},
		" ":   {mediaText, ""},
		"*/*": {mediaText, ""},
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": {mediaText, ""},
		mediaJSON + asFlagz + zVersion:                                    structured,
		"application/*" + asFlagz + zVersion:                              structured,
		mediaYAML + asFlagz + zVersion:                                    {mediaYAML, zVersion},
		"text/plain;q=0.1," + mediaJSON + asFlagz + zVersion:              structured,
		"*/*," + mediaJSON + asFlagz + zVersion:                           structured,
		mediaJSON + asFlagz + zVersion + ";q=0,text/plain":                {mediaText, ""},
		"bro/ken/type," + mediaJSON + asFlagz + zVersion:                  structured,
		mediaJSON + asFlagz + zVersion + ";q=x,text/*":                    {mediaText, ""},
	} {
		if got, ok := negotiate(header, "Flagz"); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q gives %v %t, want %v", header, got, ok, want)
		}
	}
	for _, header := range []string{mediaJSON, "image/png", mediaJSON + asFlagz + "v2", "text/plain" + asFlagz + zVersion, "application/vnd.kubernetes.protobuf"} {
		if got, ok := negotiate(header, "Flagz"); ok {
			t.Errorf("%q gives %v", header, got)
		}
	}
}
