// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// occupy takes an address and does the same with every connection, until leave.
func occupy(t *testing.T, address string, handle func(net.Conn)) (connections *atomic.Int64, leave func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			go handle(conn)
		}
	}()
	leave = sync.OnceFunc(func() {
		_ = listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	t.Cleanup(leave)
	return connections, leave
}

func (r *rig) failing() (all []Status) {
	for _, s := range r.source.Status() {
		if !s.FailingSince.IsZero() {
			all = append(all, s)
		}
	}
	return all
}

func (r *rig) awaitFailing(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "all resources report the outage", func() bool { return len(r.failing()) == len(watched) })
}

// deaths are the ways in which a server can be gone.
var deaths = map[string]func(net.Conn){
	"refuses connections": nil,
	"closes connections":  func(c net.Conn) { _ = c.Close() },
	"closes when asked": func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	},
	"is silent": func(net.Conn) {},
}

// TestOutage_SeenAndEnds: however the API server fails, each resource is reported as failing until the server is back,
// few connections are made, and changes made in the meantime are applied soon after.
func TestOutage_SeenAndEnds(t *testing.T) {
	for name, handle := range deaths {
		t.Run(name, func(t *testing.T) { t.Parallel(); seeOutage(t, newSecureRig(t), handle) })
	}
	t.Run("closes when asked, HTTP/1.1", func(t *testing.T) { t.Parallel(); seeOutage(t, newRig(t), deaths["closes when asked"]) })
}

func seeOutage(t *testing.T, r *rig, handle func(net.Conn)) {
	// A tenth of what retry returns.
	const pauses = 10
	r.source.backoff = retry()
	r.source.backoff.Duration /= pauses
	r.source.backoff.Cap /= pauses
	r.populate()
	r.run(t)
	r.complete(t)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int64
	counted, leave := &connections, func() {}
	if handle != nil {
		counted, leave = occupy(t, r.Address(), handle)
	}
	r.awaitFailing(t)
	before, began := counted.Load(), time.Now()
	for time.Since(began) < 4*time.Second/pauses {
		if found := r.failing(); len(found) != len(watched) {
			t.Fatalf("only %d resources are said to fail during the outage", len(found))
		}
		time.Sleep(20 * time.Millisecond / pauses)
	}
	if got := r.logs.FilterMessageSnippet("reachable again").Len(); got != 0 {
		t.Errorf("during the outage the log says %d times that the server answers again", got)
	}
	made, lasted := counted.Load()-before, time.Since(began)
	// On average at most one per second and resource.
	if most := int64(len(watched)) * (1 + int64(pauses*lasted/time.Second)); made > most {
		t.Errorf("%d connections within %v, want %d at most", made, lasted, most)
	}
	r.posts.Expect(t)
	r.Set(services, apiService("a", 81))
	r.Remove(endpointSlices, "ns", "b-1")
	r.Compact()
	leave()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "what changed is applied", func() bool {
		return r.cache.Snapshot(keyOf("a")).Spec.Ports[0].Port == 81 && len(r.cache.Snapshot(keyOf("b")).Slices) == 0
	})
	testenv.Eventually(t, "no resource is failing", func() bool { return len(r.failing()) == 0 })
	for _, message := range []string{"cannot read from the API server", "reachable again"} {
		lines := r.logs.FilterMessageSnippet(message).All()
		if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["resources"]), "endpointslices") {
			t.Errorf("one outage made %d lines that say %q, want one with the resources: %v", len(lines), message, lines)
		}
	}
}

// asking is a rig whose source asks at an address instead of the rig's server.
func asking(t *testing.T, address string) *rig {
	r := newRig(t)
	config := clientConfig(r.Server)
	config.Host = address
	made, err := newForREST(Config{NodeName: "n"}, config, r.cache, r.source.log, quickLimits)
	if err != nil {
		t.Fatal(err)
	}
	r.source = made
	return r
}

// TestOutage_FailedHandshakeIsNoAnswer: a failed TLS handshake does not count as an answer, whether the server closes
// the connection, is silent or has another certificate.
func TestOutage_FailedHandshakeIsNoAnswer(t *testing.T) {
	stranger := httptest.NewUnstartedServer(http.NotFoundHandler())
	stranger.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	addresses := map[string]string{"a stranger's certificate": stranger.Listener.Addr().String()}
	for name, handle := range deaths {
		if handle != nil {
			occupied, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addresses[name] = occupied.Addr().String()
			_ = occupied.Close()
			occupy(t, addresses[name], handle)
		}
	}
	for name, address := range addresses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := asking(t, "https://"+address)
			r.run(t)
			r.awaitFailing(t)
			for range 100 {
				time.Sleep(2 * time.Millisecond)
				if found := r.failing(); len(found) != len(watched) || !found[0].Heard.IsZero() {
					t.Fatalf("heard of: %+v", r.source.Status())
				}
			}
			t.Log(r.failing()[0].Err)
		})
	}
}

// alwaysAnswers answers each request the same.
type alwaysAnswers struct {
	status     int
	retryAfter string
	requests   atomic.Int64
}

func (a *alwaysAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.requests.Add(1)
	answer := httptest.NewRecorder()
	if a.retryAfter != "" {
		answer.Header().Set("Retry-After", a.retryAfter)
	}
	answer.WriteHeader(a.status)
	_, _ = io.WriteString(answer, "not now")
	response := answer.Result()
	response.Request = r
	return response, nil
}

// TestOutage_OverloadedServerNotFlooded: an overloaded server gets no request before its Retry-After time, and few
// requests if it sends none.
func TestOutage_OverloadedServerNotFlooded(t *testing.T) {
	for _, a := range []struct {
		status     int
		retryAfter string
		most       int // requests for one resource
	}{
		{http.StatusTooManyRequests, "3", 4}, {http.StatusServiceUnavailable, "3", 4}, {http.StatusInternalServerError, "", 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &alwaysAnswers{status: a.status, retryAfter: a.retryAfter}
			r := rigOf(t, nil, &rest.Config{Host: "http://server", QPS: -1, Transport: server})
			r.source.backoff, r.source.overload = retry(), overload()
			r.run(t)
			time.Sleep(10 * time.Second)
			if got, most := server.requests.Load(), int64(len(watched)*a.most); got > most || got < int64(len(watched)) {
				t.Errorf("%d: %d requests within 10 s, want %d at most", a.status, got, most)
			}
			if len(r.failing()) != len(watched) || r.logs.FilterMessageSnippet("reachable again").Len() != 0 {
				t.Errorf("%d: the log says that the server answers again, or only %d resources are failing", a.status, len(r.failing()))
			}
		})
	}
}

// TestOutage_StartWaitsForServiceCIDRs: a start while the server is unreachable or overloaded waits for the
// ServiceCIDRs, because rules depend on them.
func TestOutage_StartWaitsForServiceCIDRs(t *testing.T) {
	r := newRig(t)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	r.populate()
	r.Reject(serviceCIDRs, apierrors.NewTooManyRequests("not now", 1))
	r.run(t)
	r.awaitFailing(t)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the ranges are rejected", func() bool { return len(r.Asked(serviceCIDRs)) > 0 })
	r.Reject(serviceCIDRs, nil)
	lines := r.posts.Await(t, "primed ns/a ns/b")
	if !slices.Contains(lines, "ranges 10.96.0.0/16") {
		t.Errorf("primed without the ranges: %v", lines)
	}
}
