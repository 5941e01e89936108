// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestServer_OnlyNodeHostNamesAnswered: the server only answers requests to names of the node, so a page whose name was
// made to resolve to the metrics address can neither read nor change anything.
func TestServer_OnlyNodeHostNamesAnswered(t *testing.T) {
	c := on(anyPort)
	c.Hosts = []string{"Node-1", "host.example.com."}
	s := newServer(c)
	started(t, s)
	address := addressOf(t, s)
	for _, path := range []string{"/metrics", "/configz", "/debug/flags/v"} {
		for host, ok := range map[string]bool{
			"127.0.0.1:10249": true, "[::1]:10249": true, "192.0.2.1": true, "::1": false,
			"localhost:10249": true, "LOCALHOST.": true, "node-1": true, "NODE-1:80": true, "host.example.com": true,
			"rebound.example.net:10249": false, "node-1.example.net": false, "localhost.example.net": false,
			"1.2.3.4.example.net": false, ":10249": false,
		} {
			method := http.MethodGet
			if strings.HasPrefix(path, "/debug") {
				method = http.MethodPut
			}
			asked, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader("4"))
			if err != nil {
				t.Fatal(err)
			}
			asked.Host = host
			answer, err := http.DefaultClient.Do(asked)
			if err != nil {
				t.Fatal(host, err)
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{true: http.StatusOK, false: http.StatusMisdirectedRequest}[ok]; answer.StatusCode != want {
				t.Errorf("%s %s for host %q: status %d %q, want %d", method, path, host, answer.StatusCode, text, want)
			}
			if !ok && (!strings.Contains(string(text), "is not a name of this node: use an address") || !strings.Contains(string(text), "metrics.hosts")) {
				t.Errorf("host %q: %q", host, text)
			}
		}
	}
}

// TestServer_WithoutHostsAnyNameAnswered: a server without configured names answers requests to any name.
func TestServer_WithoutHostsAnyNameAnswered(t *testing.T) {
	s := newServer(on(anyPort))
	started(t, s)
	asked, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addressOf(t, s)+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	asked.Host = "proxy.example.net"
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("status %d, want %d", answer.StatusCode, http.StatusOK)
	}
}

// TestOnHost: a client is on this host if it connects from a loopback address and names the host by address or as
// localhost.
func TestOnHost(t *testing.T) {
	for _, c := range []struct {
		client, host string
		want         bool
	}{
		{"127.0.0.1:4000", "127.0.0.1:10256", true},
		{"[::1]:4000", "localhost:10256", true},
		{"[::ffff:127.0.0.1]:4000", "192.0.2.1:10256", true},
		{"127.0.0.1:4000", "", true},
		{"127.0.0.1:4000", "rebound.example.net:10256", false},
		{"192.0.2.1:4000", "192.0.2.1:10256", false},
		{"[2001:db8::1]:4000", "localhost", false},
		{"nonsense", "localhost", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/healthz?verbose", nil)
		r.RemoteAddr, r.Host = c.client, c.host
		if OnHost(r) != c.want {
			t.Errorf("client %s, host %q: want %t", c.client, c.host, c.want)
		}
	}
}
