// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/daemon/plan"
	"github.com/sluice-proxy/sluice/internal/daemon/preflight"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/trace"
	"github.com/sluice-proxy/sluice/test/terminaltest"
)

// proxyOf serves the socket of a proxy all of whose answers contain a text in each field. It returns its path.
func proxyOf(t *testing.T, text string) string {
	t.Helper()
	mux := http.NewServeMux()
	serve := func(path string, answer any) {
		terminaltest.Fill(answer, text)
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Sluice-Api", inspect.Version)
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		})
	}
	serve(inspect.PathStatus, &inspect.Status{})
	serve(inspect.PathServices, &inspect.ServiceList{})
	serve(inspect.PathService, &inspect.ServiceDetail{})
	serve(inspect.PathAllDetails, &struct{ Items []*inspect.ServiceDetail }{})
	serve(inspect.PathAllEndpoints, &struct{ Items []*inspect.EndpointList }{})
	serve(inspect.PathEndpoints, &inspect.EndpointList{})
	serve(inspect.PathTop, &inspect.TopList{})
	serve(inspect.PathFlows, &inspect.FlowEvent{})
	serve(inspect.PathExplain, &explain.Answer{})
	serve(inspect.PathEvents, &inspect.EventList{})
	connections := &inspect.ConnectionList{}
	serve(inspect.PathConnections, connections)
	connections.Continue = 0
	mux.HandleFunc(inspect.PathDump, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Sluice-Api", inspect.Version)
		_, _ = w.Write(archive(t, text))
	})
	mux.HandleFunc(inspect.PathGone, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Sluice-Api", inspect.Version)
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(inspect.Failure{Error: text})
	})
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

func archive(t *testing.T, text string) []byte {
	var made bytes.Buffer
	packed := gzip.NewWriter(&made)
	files := tar.NewWriter(packed)
	index := strings.ReplaceAll(text, "\n", "") + "\n"
	if err := files.WriteHeader(&tar.Header{Name: "x/INDEX.txt", Size: int64(len(index)), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	_, _ = files.Write([]byte(index))
	_, _ = files.Close(), packed.Close()
	return made.Bytes()
}

// TestCLI_ForeignTextIsEscaped: text of tenants and of the proxy can neither move the cursor of a terminal nor add a
// row to the output of a command.
func TestCLI_ForeignTextIsEscaped(t *testing.T) {
	hostile, harmless := proxyOf(t, terminaltest.Hostile), proxyOf(t, "x")
	commands := []string{
		"status", "get services", "get services -o wide", "get services --sort-by name", "get endpoints", "get endpoints -n shop web", "get events",
		"get connections", "describe service", "describe service -n shop web", "explain 192.0.2.1 192.0.2.2:80",
		"top services", "top endpoints -o wide", "get connections --by client", "dump",
		"get services -o name", "get services -o yaml", "get services -o json", "status -o json", "status -o yaml",
		"get services -o jsonpath={.items[*].clusterIPs}", "get services -o jsonpath={.items[*].namespace}",
	}
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			same := strings.Replace(command, "yaml", "json", 1) // YAML has no escapes for some characters, so JSON is printed
			terminaltest.Check(t, outputOf(t, hostile, command+" --socket SOCKET"), outputOf(t, harmless, same+" --socket SOCKET"))
		})
	}
	for _, format := range []string{"table", "json"} { // the stream ends with an error
		command := "observe -o " + format + " --socket SOCKET"
		terminaltest.Check(t, outputOf(t, hostile, command), outputOf(t, harmless, command))
	}
	_, got := inspect.NewClient(hostile).Gone(t.Context(), inspect.GoneQuery{})
	terminaltest.Check(t, got.Error(), "")
}

func outputOf(t *testing.T, socket, command string) string {
	t.Helper()
	t.Chdir(t.TempDir()) // dump writes a file
	var out bytes.Buffer
	root := rootCommand()
	root.SetArgs(splitNames(root, strings.Fields(strings.ReplaceAll(command, "SOCKET", socket))))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(t.Context()); err != nil && !strings.Contains(command, "observe") {
		t.Error(err)
	}
	if out.Len() == 0 {
		t.Error("no output")
	}
	return out.String()
}

// TestCLI_LocalReportsEscapeText: commands that query no proxy escape foreign text, too.
func TestCLI_LocalReportsEscapeText(t *testing.T) {
	for name, print := range map[string]func(text string, to io.Writer) error{
		"trace": func(text string, to io.Writer) error {
			var a trace.Answer
			terminaltest.Fill(&a, text)
			return (&inspect.Output{}).Print(to, &a)
		},
		"plan": func(text string, to io.Writer) error {
			var r plan.Report
			terminaltest.Fill(&r, text)
			return (&inspect.Output{Format: "wide"}).Print(to, &r)
		},
		"preflight": func(text string, to io.Writer) error {
			var r preflight.Report
			terminaltest.Fill(&r, text)
			return (&inspect.Output{}).Print(to, &r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var hostile, harmless bytes.Buffer
			if err := print(terminaltest.Hostile, &hostile); err != nil {
				t.Fatal(err)
			}
			if err := print("x", &harmless); err != nil {
				t.Fatal(err)
			}
			terminaltest.Check(t, hostile.String(), harmless.String())
		})
	}
}
