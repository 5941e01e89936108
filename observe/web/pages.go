// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"k8s.io/component-base/metrics/prometheus/slis"
)

// component is the name that kube-proxy gives itself on its pages.
const component = "kube-proxy"

// Pages are the contents of the metrics address. A page whose handler or function is nil does not
// exist.
type Pages struct {
	// Mode is the answer of /proxyMode.
	Mode string
	// Metrics serves /metrics, Services /metrics/services.
	Metrics, Services http.Handler
	// Configz returns the configurations that /configz shows, each under its name.
	Configz func() map[string]any
	// Flagz returns the flags for /flagz (gate ComponentFlagz), without secrets.
	Flagz func() map[string]string
	// Statusz describes the program for /statusz (gate ComponentStatusz).
	Statusz *Program
	// UI serves the page for people at UIPath and below.
	UI     http.Handler
	UIPath string
	// Profiling serves /debug/pprof and /debug/flags.
	Profiling bool
	// SetVerbosity sets the verbosity of the logs to the value that a client has put at
	// /debug/flags/v, and returns the text of the answer.
	SetVerbosity func(string) (string, error)
}

// Program describes a program for people.
type Program struct {
	// Started is when the process began.
	Started time.Time
	// Version is the release of Kubernetes that it behaves like, for example "1.37.2".
	Version string
	// Own is the program's own version, for example "v1.2.3".
	Own string
}

// Handler serves the pages.
func (p Pages) Handler() http.Handler {
	site := &listedMux{ServeMux: http.NewServeMux()}
	site.Handle("/healthz", http.HandlerFunc(healthz))
	site.Handle("/healthz/ping", http.HandlerFunc(ping))
	site.Handle("/proxyMode", plain(p.Mode))
	slis.SLIMetricsWithReset{}.Install(site) // /metrics/slis
	if p.Metrics != nil {
		site.Handle("/metrics", few(p.Metrics))
	}
	if p.Services != nil {
		site.Handle("/metrics/services", few(p.Services))
	}
	if p.Configz != nil {
		site.Handle("/configz", configz(p.Configz))
	}
	if p.Flagz != nil {
		site.Handle("/flagz", flagz(p.Flagz))
	}
	if p.Statusz != nil {
		site.Handle("/statusz", statusz(*p.Statusz, site.folders()))
	}
	if p.UI != nil {
		site.Handle(p.UIPath, few(p.UI))
	}
	p.addDebugging(site.ServeMux)
	return site
}

// listedMux remembers the paths of its pages for /statusz.
type listedMux struct {
	*http.ServeMux
	paths []string
}

// Handle adds a page that /statusz lists.
func (m *listedMux) Handle(path string, handler http.Handler) {
	m.paths = append(m.paths, path)
	m.ServeMux.Handle(path, handler)
}

// folders returns the first part of each path, once each, sorted.
func (m *listedMux) folders() []string {
	var all []string
	for _, path := range m.paths {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		all = append(all, "/"+first)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// healthz says that this server lives, as every Kubernetes component does, and counts the answer
// for /metrics/slis. The node's health has a separate address.
func healthz(w http.ResponseWriter, r *http.Request) {
	_ = slis.ObserveHealthcheck(r.Context(), "ping", "healthz", slis.Success) // never fails in component-base v0.37
	text := "ok"
	if r.URL.Query().Has("verbose") {
		text = "[+]ping ok\nhealthz check passed\n"
	}
	plain(text).ServeHTTP(w, r)
}

func ping(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "ok")
}

func plain(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Answer(w, http.StatusOK, Text, []byte(text))
	})
}

func configz(current func() map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(current())
		if err != nil {
			http.Error(w, fmt.Sprintf("cannot show the configuration: %v", err), http.StatusInternalServerError)
			return
		}
		Answer(w, http.StatusOK, JSON, text)
	})
}

// addDebugging adds the pages below /debug, which /statusz does not list.
func (p Pages) addDebugging(mux *http.ServeMux) {
	if !p.Profiling {
		return
	}
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if p.SetVerbosity == nil {
		return
	}
	index := plain("/debug/flags/v: the verbosity of the logs; PUT a number\n")
	mux.Handle("/debug/flags", index)
	mux.Handle("/debug/flags/{$}", index)
	mux.Handle("/debug/flags/v", verbosity(p.SetVerbosity))
}

const (
	// fewMax is how many answers of one big page are made or sent at a time.
	fewMax = 4
	// fewPatience bounds the wait for another one to end. A scrape waits for 10 s by default.
	fewPatience = 5 * time.Second
)

// few bounds the answers of a page that grow with the cluster: each is whole in memory until its
// client has read it. A client that waits for too long gets status 503.
func few(page http.Handler) http.Handler {
	places := make(chan struct{}, fewMax)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patience := time.NewTimer(fewPatience)
		defer patience.Stop()
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			page.ServeHTTP(w, r)
		case <-r.Context().Done():
		case <-patience.C:
			http.Error(w, fmt.Sprintf("busy: %d clients are reading this page; try again later", fewMax), http.StatusServiceUnavailable)
		}
	})
}

// verbosityMax bounds what the server reads of a request, in bytes.
const verbosityMax = 64

// verbosity sets the verbosity of the logs. It rejects every method but PUT with status 406, as
// kube-proxy does.
func verbosity(set func(string) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text := http.StatusNotAcceptable, "method must be PUT, with a number in the body"
		if r.Method == http.MethodPut {
			code = http.StatusOK
			value, err := io.ReadAll(io.LimitReader(r.Body, verbosityMax))
			if err == nil {
				text, err = set(string(value))
			}
			if err != nil {
				code, text = http.StatusBadRequest, err.Error()
			}
		}
		Answer(w, code, mediaText, []byte(text+"\n"))
	})
}
