// SPDX-License-Identifier: Apache-2.0

package security

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// setClock is a time that tests set.
type setClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *setClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *setClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// guarded is a page behind reviews by an API server.
type guarded struct {
	api     *apitest.Server
	clock   *setClock
	reviews *Reviews
	handler http.Handler
	header  string
	refused atomic.Int32

	mu     sync.Mutex
	failed []error
}

func newGuarded(t *testing.T) *guarded { return newGuardedAt(t, Address{Header: "Authorization"}) }

func newGuardedAt(t *testing.T, at Address) *guarded {
	t.Helper()
	api, err := apitest.New(net.Listen)
	check(t, err)
	t.Cleanup(func() { api.Stop() }) // a test may have stopped it
	g := &guarded{api: api, clock: &setClock{now: time.Now()}}
	at.Failed = func(err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.failed = append(g.failed, err)
	}
	at.Refused = func(int) { g.refused.Add(1) }
	g.header = at.Header
	g.reviews, err = newReviews(&rest.Config{Host: "http://" + api.Address()}, at, g.clock)
	check(t, err)
	g.handler = g.reviews.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "secret") })) // a recorder
	api.Grant("scraper", "system:serviceaccount:monitoring:prometheus", func(a *authorizationv1.NonResourceAttributes) bool {
		return a.Verb == "get" && a.Path == "/metrics"
	})
	return g
}

// expect makes a request, and checks status and text.
func (g *guarded) expect(t *testing.T, token, method, path string, code int, text string) {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set(g.header, "Bearer "+token)
	}
	answer := httptest.NewRecorder()
	g.handler.ServeHTTP(answer, r)
	if answer.Code != code || !strings.Contains(answer.Body.String(), text) {
		t.Errorf("%s %s with token %.20q: %d %q, want %d %q", method, path, token, answer.Code, answer.Body, code, text)
	}
	if code != http.StatusOK && strings.Contains(answer.Body.String(), "secret") {
		t.Error("the answer has the page")
	}
}

// asked returns the number of questions to the API server.
func (g *guarded) asked() int {
	return len(g.api.Asked(apitest.TokenReviews)) + len(g.api.Asked(apitest.SubjectAccessReviews))
}

// TestReviews_Authorization: only callers with a valid token and the permission get an answer, except at the health
// paths without details.
func TestReviews_Authorization(t *testing.T) {
	g := newGuarded(t)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	g.expect(t, "scraper", "GET", "/configz", 403, `user "system:serviceaccount:monitoring:prometheus" has no permission for verb get of nonResourceURL /configz`)
	g.expect(t, "scraper", "PUT", "/metrics", 403, "verb put")
	g.expect(t, "stranger", "GET", "/metrics", 401, "does not accept the token")
	g.expect(t, "", "GET", "/metrics", 401, "send a token")
	g.expect(t, strings.Repeat("x", tokenMax+1), "GET", "/metrics", 401, "send a token")
	g.expect(t, "scraper", "GET", "/"+strings.Repeat("x", pathMax), 414, "path too long")
	asked := g.asked()
	for _, path := range []string{"/healthz", "/healthz/ping", "/node/healthz", "/node/livez"} {
		g.expect(t, "", "GET", path, 200, "secret")
		g.expect(t, "", "GET", path+"?verbose", 401, "unauthorized")
	}
	if g.asked() != asked {
		t.Error("a request without a token asked the API server")
	}
}

// TestReviews_InspectionTokens: the inspection address accepts only tokens of its audience, in its header.
func TestReviews_InspectionTokens(t *testing.T) {
	g := newGuardedAt(t, Address{Header: "Sluice-Authorization", Audience: "sluice.dev"})
	all := func(*authorizationv1.NonResourceAttributes) bool { return true }
	g.api.Grant("right", "fleet", all, "sluice.dev")
	g.api.Grant("wrong", "fleet", all, "vault")
	g.api.Grant("server", "admin", all) // the audience of the API server
	g.expect(t, "right", "GET", "/v1/status", 200, "secret")
	g.expect(t, "wrong", "GET", "/v1/status", 401, "does not accept the token")
	g.expect(t, "server", "GET", "/v1/status", 401, "does not accept the token")
	g.expect(t, "", "GET", "/v1/status", 401, "send a token of the cluster (Sluice-Authorization: Bearer)")
	g.header = "Authorization"
	g.expect(t, "right", "GET", "/v1/status", 401, "send a token")
	if n := g.refused.Load(); n != 4 {
		t.Errorf("%d requests are counted as refused, want 4", n)
	}
	metrics := newGuarded(t)
	metrics.api.Grant("right", "fleet", all, "sluice.dev")
	metrics.expect(t, "right", "GET", "/metrics", 401, "does not accept the token")
}

// TestReviews_AnswersExpire: a revoked permission ends within a minute, and a new one is seen after ten seconds.
func TestReviews_AnswersExpire(t *testing.T) {
	g := newGuarded(t)
	for range 3 {
		g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
		g.expect(t, "late", "GET", "/metrics", 401, "")
	}
	if n := g.asked(); n != 3 {
		t.Errorf("%d questions, want 3", n)
	}
	g.api.Grant("scraper", "", nil)
	g.api.Grant("late", "late", func(*authorizationv1.NonResourceAttributes) bool { return true })
	g.clock.pass(deniedFor + time.Second)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	g.expect(t, "late", "GET", "/metrics", 200, "secret")
	g.clock.pass(allowedFor)
	g.expect(t, "scraper", "GET", "/metrics", 401, "")
}

// TestReviews_APIServerUnavailable: without the API server, only remembered answers are valid, and other callers are
// rejected.
func TestReviews_APIServerUnavailable(t *testing.T) {
	g := newGuarded(t)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	check(t, g.api.Stop())
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	g.expect(t, "other", "GET", "/metrics", 503, "cannot check the caller: the API server gave no answer")
	g.clock.pass(allowedFor + time.Second)
	g.expect(t, "scraper", "GET", "/metrics", 503, "cannot check the caller")
	if len(g.failed) != 2 || !strings.Contains(g.failed[0].Error(), "TokenReview") {
		t.Errorf("told %v", g.failed)
	}
	check(t, g.api.Start())
	g.api.Reject(apitest.SubjectAccessReviews, apierrors.NewForbidden(authorizationv1.Resource("subjectaccessreviews"), "", errors.New("no permission")))
	g.expect(t, "scraper", "GET", "/metrics", 503, "cannot check the caller")
	g.api.Reject(apitest.SubjectAccessReviews, nil)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
}

// TestReviews_InvalidTokensBounded: many invalid tokens cause only a few requests to the API server per second, fill no
// memory, and do not block a caller that was allowed.
func TestReviews_InvalidTokensBounded(t *testing.T) {
	g := newGuarded(t)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	codes := map[int]int{}
	for i := range 2 * remembered {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 1+i))
		answer := httptest.NewRecorder()
		g.handler.ServeHTTP(answer, r)
		codes[answer.Code]++
	}
	if codes[401] < strangersBurst/2 || codes[401] > 4*strangersBurst || codes[401]+codes[503] != 2*remembered {
		t.Errorf("statuses %v", codes)
	}
	g.clock.pass(allowedFor + time.Second)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	for i := range 2 * remembered {
		g.reviews.deny(question{verb: "get", path: strings.Repeat("/", i)}, &refusal{})
	}
	if n := len(g.reviews.denied.Keys()); n > remembered {
		t.Errorf("%d denials are remembered", n)
	}
}

// TestReviews_ConcurrentCallers: concurrent requests never get the answer of another caller.
func TestReviews_ConcurrentCallers(t *testing.T) {
	g := newGuarded(t)
	g.expect(t, "scraper", "GET", "/metrics", 200, "secret")
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { g.expect(t, "scraper", "GET", "/metrics", 200, "secret") })
		all.Go(func() { g.expect(t, "", "GET", "/metrics", 401, "") })
	}
	all.Wait()
}

// written is a directory with a certificate for a name.
func written(t *testing.T, dir, name string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
}

// serve serves a page with certificates until the test ends, and returns the address.
func serve(t *testing.T, c *Certificates, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	address := listener.Addr().String()
	check(t, listener.Close())
	ctx, stop := context.WithCancel(t.Context())
	listening := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	running.Go(func() {
		_ = web.NewServer(web.ServerConfig{Name: "test", Address: address, Handler: handler, TLS: c.Config(), Failed: func(error) {}, Listening: func(err error) { listening <- err }}).Run(ctx)
	})
	t.Cleanup(func() { stop(); running.Wait() })
	check(t, <-listening)
	return address
}

// nameAt returns the name in the certificate of a server, or why the handshake fails.
func nameAt(address string) string {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // the test looks at the certificate
	if err != nil {
		return err.Error()
	}
	defer conn.Close() // the test has what it needs
	return strings.Split(conn.ConnectionState().PeerCertificates[0].Subject.CommonName, "@")[0]
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestCertificates_FollowFiles: a new handshake uses a new pair, an open connection continues, and an invalid pair is
// only logged.
func TestCertificates_FollowFiles(t *testing.T) {
	dir := t.TempDir()
	core, logs := observer.New(zap.WarnLevel)
	c := NewCertificates(Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}, zap.New(core))
	address := serve(t, c, http.NotFoundHandler())
	if name := nameAt(address); !strings.Contains(name, "internal error") {
		t.Errorf("without a file: %s", name)
	}
	await(t, "the missing file is reported", func() bool { return logs.Len() == 1 })
	if told := logs.All()[0].ContextMap()["error"]; !strings.Contains(told.(string), "SluiceConfiguration.security.certFile: open "+dir) {
		t.Error(told)
	}
	written(t, dir, "first")
	await(t, "the first certificate", func() bool { return nameAt(address) == "first" })
	open, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // as above
	check(t, err)
	defer open.Close() // the test ends
	written(t, dir, "second")
	await(t, "the second certificate", func() bool { return nameAt(address) == "second" })
	check(t, os.WriteFile(filepath.Join(dir, "tls.key"), []byte("nonsense"), 0o600))
	await(t, "the bad key is reported", func() bool { return logs.Len() == 2 })
	if name := nameAt(address); name != "second" {
		t.Errorf("with a bad key: %s", name)
	}
	_, err = open.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	check(t, err)
	if text, err := io.ReadAll(open); err != nil || !bytes.HasPrefix(text, []byte("HTTP/1.0 404")) {
		t.Errorf("the open connection: %q, %v", text, err)
	}
}

// TestCertificates_SelfSigned: the server signs a certificate, and replaces it before it expires.
func TestCertificates_SelfSigned(t *testing.T) {
	c := NewCertificates(Files{Name: "node-1", Address: net.ParseIP("192.0.2.1")}, zap.NewNop())
	first := slices.Clone(c.loaded)
	leaf := c.current.Load().Certificates[0].Leaf
	if err := leaf.VerifyHostname("node-1"); err != nil || leaf.VerifyHostname("192.0.2.1") != nil {
		t.Error(err, leaf.IPAddresses)
	}
	c.look(time.Now().Add(300 * 24 * time.Hour))
	if !slices.EqualFunc(first, c.loaded, slices.Equal) {
		t.Error("signed again too early")
	}
	c.look(leaf.NotAfter.Add(-24 * time.Hour))
	if slices.EqualFunc(first, c.loaded, slices.Equal) {
		t.Error("not signed again")
	}
}

// TestCertificates_Client: a verified client certificate names the user, and a connection without a certificate is
// rejected if one is required.
func TestCertificates_Client(t *testing.T) {
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("client", nil, nil) // with its authority
	check(t, err)
	authority := filepath.Join(dir, "ca.crt")
	check(t, os.WriteFile(authority, certificate, 0o600))
	pair, err := tls.X509KeyPair(certificate, key)
	check(t, err)
	user := &caller{who: sha256.Sum256(pair.Certificate[0])}
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{pair.Leaf}}}
	if c, refused := callerOf(r, "Authorization"); refused != nil || c.who != user.who || c.user.Username != pair.Leaf.Subject.CommonName || !slices.Contains(c.user.Groups, "system:authenticated") {
		t.Errorf("%+v, %v", c, refused)
	}
	c := NewCertificates(Files{Name: "n", ClientCA: authority, RequireClient: true}, zap.NewNop())
	address := serve(t, c, http.NotFoundHandler())
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // about the client
	if err == nil {
		_, err = io.ReadAll(conn) // TLS 1.3 tells the client late
		conn.Close()              // it failed
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
}

// TestWithoutDetails: hosts other than this one get no details of health from the server without TLS.
func TestWithoutDetails(t *testing.T) {
	handler := WithoutDetails(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		from, path string
		code       int
	}{
		{"192.0.2.9:4000", "/healthz", 200}, {"192.0.2.9:4000", "/livez?verbose", 403},
		{"127.0.0.1:4000", "/healthz?verbose", 200}, {"192.0.2.9:4000", "/endpoints/10.0.0.1:80", 200},
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1:10256"+c.path, nil)
		r.RemoteAddr = c.from
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		if answer.Code != c.code {
			t.Errorf("%+v: %d %s", c, answer.Code, answer.Body)
		}
	}
}
