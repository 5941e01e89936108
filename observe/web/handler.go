package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/component-base/metrics/prometheus/slis"
)

// component is the name that kube-proxy gives itself on its pages.
const component = "kube-proxy"

// pages collects paths with their handlers.
type pages struct {
	*http.ServeMux
	paths []string
}

// Handle adds a page that /statusz lists.
func (p *pages) Handle(path string, handler http.Handler) {
	p.paths = append(p.paths, path)
	p.ServeMux.Handle(path, handler)
}

// folders gives the first part of each path, once each, sorted.
func (p *pages) folders() []string {
	var all []string
	for _, path := range p.paths {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		all = append(all, "/"+first)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func newHandler(c Config) http.Handler {
	p := &pages{ServeMux: http.NewServeMux()}
	p.Handle("/healthz", http.HandlerFunc(healthz))
	p.Handle("/healthz/ping", http.HandlerFunc(ping))
	p.Handle("/proxyMode", plain(c.Mode))
	slis.SLIMetricsWithReset{}.Install(p) // /metrics/slis
	if c.Metrics != nil {
		p.Handle("/metrics", c.Metrics)
	}
	if c.Services != nil {
		p.Handle("/metrics/services", c.Services)
	}
	if c.Configz != nil {
		p.Handle("/configz", configz(c.Configz))
	}
	if c.Flagz != nil {
		p.Handle("/flagz", flagz(c.Flagz))
	}
	if c.Statusz != nil {
		p.Handle("/statusz", statusz(*c.Statusz, p.folders()))
	}
	addDebugging(p.ServeMux, c)
	return p
}

// healthz says that this server lives, as every Kubernetes component does, and
// counts that for /metrics/slis.
func healthz(w http.ResponseWriter, r *http.Request) {
	// It never fails (component-base v0.36).
	_ = slis.ObserveHealthcheck(r.Context(), "ping", "healthz", slis.Success)
	text := "ok"
	if r.URL.Query().Has("verbose") {
		text = "[+]ping ok\nhealthz check passed\n"
	}
	plain(text).ServeHTTP(w, r)
}

func ping(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok")
}

// plain serves a text.
func plain(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
	})
}

// configz shows configurations.
func configz(current func() map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(current())
		if err != nil {
			http.Error(w, fmt.Sprintf("the configuration cannot be shown: %v", err), http.StatusInternalServerError)
			return
		}
		answer(w, http.StatusOK, "application/json", text)
	})
}

// answer writes a whole answer. Who asked is gone if it cannot be written.
func answer(w http.ResponseWriter, code int, mediaType string, body []byte) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
