// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

// served serves the socket of a proxy. It returns its path.
func served(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

// waited runs sluice wait.
func waited(socket, arguments string) error {
	root := rootCommand()
	root.SetArgs(append(strings.Fields("wait "+arguments), "--socket", socket))
	root.SetOut(&bytes.Buffer{})
	root.SetErr(&bytes.Buffer{})
	return root.Execute()
}

// TestWait_EndsIfProxyHangs: sluice wait ends if the proxy does not answer, and the error names the process. It asks
// again if no proxy runs, or if the proxy answers other queries during a slow search.
func TestWait_EndsIfProxyHangs(t *testing.T) {
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux := http.NewServeMux()
	mux.Handle("/", hangs)
	mux.HandleFunc("GET "+inspect.PathEvents, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Sluice-Api", inspect.Version)
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	hung, searches, absent := served(t, hangs), served(t, mux), filepath.Join(t.TempDir(), "none")
	for _, arguments := range []string{"--for applied", "--for applied a/b", "--gone 10.0.0.1"} {
		err := waited(hung, arguments+" --request-timeout 100ms --timeout 10s")
		if !errors.As(err, new(*inspect.Silent)) {
			t.Errorf("%s: a proxy that hangs: %v", arguments, err)
		}
		err = waited(absent, arguments+" --timeout 500ms")
		if err == nil || !strings.Contains(err.Error(), "after 500ms") {
			t.Errorf("%s: no proxy: %v", arguments, err)
		}
	}
	if err := waited(searches, "--gone 10.0.0.1 --request-timeout 100ms --timeout 1s"); err == nil || !strings.Contains(err.Error(), "after 1s") {
		t.Errorf("a slow search: %v", err)
	}
}
