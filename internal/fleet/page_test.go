// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// servedPage serves the page about a stand, and returns its address.
func servedPage(t *testing.T, s *stand) (server *httptest.Server, secret string) {
	t.Helper()
	f := &flags{proxyNamespace: "kube-system", selector: "app.kubernetes.io/name=sluice", port: 10253, parallel: 64, nodeTimeout: time.Minute}
	c, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	server = httptest.NewUnstartedServer(nil)
	p := newPage(t.Context(), c)
	secret, server.Config.Handler = p.handler(server.Listener.Addr().String())
	server.Start()
	t.Cleanup(func() {
		server.Close()
		p.rounds.Wait()
	})
	return server, secret
}

func get(t *testing.T, address string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if found := answer.Header.Get("Access-Control-Allow-Origin"); found != "" {
		t.Errorf("%s may read %s", found, address)
	}
	return answer.StatusCode, string(text)
}

// TestPage_OnlyUserCanAsk: only the user can query the page: other users of the host do not know the secret, and pages
// of other sites are rejected.
func TestPage_OnlyUserCanAsk(t *testing.T) {
	server, secret := servedPage(t, newStand(t, 1))
	if len(secret) < 22 {
		t.Errorf("the secret %s is short", secret)
	}
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	for _, c := range []struct {
		path   string
		header []string
		want   int
	}{
		{secret, nil, 200},
		{secret + "fleet.js", nil, 200},
		{secret + "style.css", nil, 200},
		{secret + "api/status", nil, 200},
		{secret, []string{"Host", "localhost:" + port}, 200},
		{"/", nil, 404},
		{"/api/status", nil, 404},
		{"/" + strings.Repeat("A", len(secret)-2) + "/api/status", nil, 404},
		{secret[:len(secret)-2] + "/api/status", nil, 404},
		{secret + "api/status", []string{"Host", "attacker.example:" + port}, 403},
		{secret + "api/status", []string{"Host", "127.0.0.1"}, 403},
		{secret + "api/status", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, 403},
		{secret + "api/where/shop/none", nil, 502},
	} {
		if code, text := get(t, server.URL+c.path, c.header...); code != c.want {
			t.Errorf("%s %v: %d, want %d: %s", c.path, c.header, code, c.want, text)
		}
	}
}

// overviewAfter polls as the page does until a round ended and no other one runs.
func overviewAfter(t *testing.T, at string, round int) pageState {
	t.Helper()
	for end := time.Now().Add(testenv.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_, text := get(t, fmt.Sprintf("%sapi/status?since=%d", at, round))
		s := pageState{Overview: &overview{statusReport: &statusReport{}}}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if (s.Round > round || s.Error != "") && !s.Running {
			return s
		}
	}
	t.Fatal("no round ended")
	return pageState{}
}

// TestPage_GroupsProblems: the page groups the problems of nodes by Service.
func TestPage_GroupsProblems(t *testing.T) {
	s := newStand(t, 30)
	for _, n := range s.nodes[3:28] {
		n.status = func(s *inspect.Status) {
			for d := range s.Domains {
				s.Domains[d].Held, s.Domains[d].Quarantined = 1, []state.Quarantine{{Namespace: "shop", Name: "web", Reason: "no\n space"}}
			}
			s.Findings = []inspect.Finding{{Finding: state.Finding{Kind: "quarantined", Problem: "p", Advice: "a"}}}
		}
	}
	s.nodes[28].status = func(s *inspect.Status) { // no domain has it in quarantine
		s.Findings = []inspect.Finding{{Finding: state.Finding{Kind: "parked"}, Services: []string{"shop/large"}}}
	}
	s.api.Proxy(proxyAllBut(s, "sluice-node-0029:10253"))
	server, secret := servedPage(t, s)
	got := overviewAfter(t, server.URL+secret, 0)
	o := got.Overview
	if o == nil || len(o.Held) != 2 || o.Held[1].Service != "shop/large" || o.Held[1].Reasons[0] != "parked" || o.Held[0].Count != 25 || len(o.Held[0].Nodes) != namedMax || strings.Join(o.Held[0].Reasons, "|") != "no space" {
		t.Fatalf("%+v", got)
	}
	if o.Total != 30 || len(o.Silent) != 1 || len(o.Findings) != 26 || o.Findings["node-0003"][0].Advice != "a" || o.Nodes[0].Node != "node-0003" || o.Nodes[0].Pod != "sluice-node-0003" {
		t.Errorf("%+v", o)
	}
	if _, text := get(t, fmt.Sprintf("%s%sapi/status?since=%d", server.URL, secret, got.Round)); strings.Contains(text, "overview") {
		t.Errorf("the page gets again what it has: %s", text)
	}
	if _, text := get(t, server.URL+secret+"api/where/shop/web"); !strings.Contains(text, `"applied":29,`) {
		t.Error(text)
	}
}

// TestPage_RoundsTakeTurns: pages that request a round all the time, and queries about a Service, query each node once
// at a time.
func TestPage_RoundsTakeTurns(t *testing.T) {
	s := newStand(t, 3)
	var at, most, rounds atomic.Int32
	busy := func(d time.Duration) {
		most.Store(max(most.Load(), at.Add(1)))
		time.Sleep(d)
		at.Add(-1)
	}
	s.nodes[0].status = func(*inspect.Status) { rounds.Add(1); busy(50 * time.Millisecond) }
	s.nodes[0].detail = func(*inspect.ServiceDetail) { busy(50 * time.Millisecond) }
	server, secret := servedPage(t, s)
	for range 20 {
		get(t, server.URL+secret+"api/status?now")
		get(t, server.URL+secret+"api/where/shop/web")
	}
	last := overviewAfter(t, server.URL+secret, 1)
	if most.Load() != 1 || rounds.Load() < 2 || rounds.Load() > 20 {
		t.Errorf("%d at a time, %d rounds", most.Load(), rounds.Load())
	}
	before := rounds.Load()
	get(t, server.URL+secret+"api/status") // the last round is fresh
	time.Sleep(100 * time.Millisecond)
	if rounds.Load() != before || last.All != 3 {
		t.Errorf("%d rounds, then %d; %+v", before, rounds.Load(), last)
	}
}

// TestBrowse_SecretInFile: the secret is in a file that only this user can read, and not in the arguments of the
// browser.
func TestBrowse_SecretInFile(t *testing.T) {
	bin, out := t.TempDir(), filepath.Join(t.TempDir(), "got")
	script := fmt.Sprintf("#!/bin/sh\necho \"$1\" > %s.tmp\nmv %s.tmp %s\n", out, out, out)
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+filepath.Dir(sh))
	remove, err := browse(t.Context(), "http://127.0.0.1:1/SECRET/")
	if err != nil {
		t.Fatal(err)
	}
	var name string
	for end := time.Now().Add(testenv.Patience); name == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(out)
		name = strings.TrimSpace(string(text))
	}
	text, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(text), "url=http://127.0.0.1:1/SECRET/") || strings.Contains(name, "SECRET") {
		t.Errorf("%v: %s: %s", err, name, text)
	}
	for _, path := range []string{name, filepath.Dir(name)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	remove()
	if _, err := os.Stat(name); err == nil {
		t.Error("the file is left")
	}
}
