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
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-proxy/sluice/test/sourcetest"
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
	sourcetest.Eventually(t, "all resources report the outage", func() bool { return len(r.failing()) == len(watched) })
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

// Whichever way it is gone, each resource says so
// until it is back, nobody claims meanwhile that it answers, few connections are
// made, and what was written meanwhile is applied soon after.
func TestAnOutageIsSeenAndEnds(t *testing.T) {
	for name, handle := range deaths {
		t.Run(name, func(t *testing.T) { t.Parallel(); seeOutage(t, newSecureRig(t), handle) })
	}
	t.Run("closes when asked, HTTP/1.1", func(t *testing.T) { t.Parallel(); seeOutage(t, newRig(t), deaths["closes when asked"]) })
}

func seeOutage(t *testing.T, r *rig, handle func(net.Conn)) {
	r.source.backoff = retry()
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
	began := time.Now()
	r.awaitFailing(t)
	t.Logf("seen after %v: %v", time.Since(began).Round(time.Millisecond), r.failing()[0].Err)
	before := counted.Load()
	const lasts = 4 * time.Second
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if found := r.failing(); len(found) != len(watched) {
			t.Fatalf("only %d resources are said to fail during the outage", len(found))
		}
	}
	if got := r.logs.FilterMessageSnippet("reachable again").Len(); got != 0 {
		t.Errorf("during the outage the log says %d times that the server answers again", got)
	}
	// On average at most one per second and resource.
	if made := counted.Load() - before; made > int64(len(watched)*(1+int(lasts.Seconds()))) {
		t.Errorf("%d connections within %v", made, lasts)
	}
	r.posts.Expect(t)
	r.Set(services, apiService("a", 81))
	r.Remove(endpointSlices, "ns", "b-1")
	r.Compact()
	leave()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	sourcetest.Eventually(t, "what changed is applied", func() bool {
		return r.cache.Snapshot(keyOf("a")).Spec.Ports[0].Port == 81 && len(r.cache.Snapshot(keyOf("b")).Slices) == 0
	})
	took := time.Since(back)
	t.Logf("applied %v after the server was back", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("applied %v after the server was back", took)
	}
	sourcetest.Eventually(t, "no resource is failing", func() bool { return len(r.failing()) == 0 })
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
	made, err := NewForREST(Config{NodeName: "n"}, config, r.cache, r.source.log)
	if err != nil {
		t.Fatal(err)
	}
	r.source = made
	return r
}

// A handshake that fails is no answer: neither when the server closes the connection
// in the midst of it, nor when it is silent, nor when it is not the one that was asked
// for.
func TestAFailedHandshakeIsNoAnswer(t *testing.T) {
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
				time.Sleep(20 * time.Millisecond)
				if found := r.failing(); len(found) != len(watched) || !found[0].Heard.IsZero() {
					t.Fatalf("heard of: %+v", r.source.Status())
				}
			}
			t.Log(r.failing()[0].Err)
		})
	}
}

// An overloaded server gets no request before the time that it asks for. If it asks for none,
// requests become rare.
func TestAnOverloadedServerIsNotStormed(t *testing.T) {
	t.Parallel()
	type answer struct {
		status     int
		retryAfter string
		most       int // requests for one resource
	}
	type overload struct {
		*rig
		answer
		requests *atomic.Int64
	}
	var all []overload
	for _, a := range []answer{
		{http.StatusTooManyRequests, "3", 4}, {http.StatusServiceUnavailable, "3", 4}, {http.StatusInternalServerError, "", 6},
	} {
		requests := new(atomic.Int64)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			if a.retryAfter != "" {
				w.Header().Set("Retry-After", a.retryAfter)
			}
			w.WriteHeader(a.status)
			_, _ = io.WriteString(w, "not now")
		}))
		t.Cleanup(server.CloseClientConnections)
		r := asking(t, server.URL)
		r.run(t)
		all = append(all, overload{r, a, requests})
	}
	const lasts = 10 * time.Second
	time.Sleep(lasts)
	for _, o := range all {
		got, most := o.requests.Load(), int64(len(watched)*o.most)
		if t.Logf("%d: %d requests within %v", o.status, got, lasts); got > most {
			t.Errorf("%d: %d requests within %v, want %d at most", o.status, got, lasts, most)
		}
		if o.awaitFailing(t); o.logs.FilterMessageSnippet("reachable again").Len() != 0 {
			t.Errorf("%d: the log says that the server answers again", o.status)
		}
	}
}

// A start while the server is away, or overloaded, waits for the ranges of ClusterIPs
// with all else: rules depend on them.
func TestAStartInAnOutageWaitsForTheRanges(t *testing.T) {
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
	sourcetest.Eventually(t, "the ranges are rejected", func() bool { return len(r.Asked(serviceCIDRs)) > 0 })
	r.Reject(serviceCIDRs, nil)
	lines := r.posts.Await(t, "primed ns/a ns/b")
	if !slices.Contains(lines, "ranges 10.96.0.0/16") {
		t.Errorf("primed without the ranges: %v", lines)
	}
}
