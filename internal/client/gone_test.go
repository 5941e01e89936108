// SPDX-License-Identifier: Apache-2.0

//go:build linux

package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/daemon/gone"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/source/kube"
)

// node returns a server that answers with a function, and its node.
func node(t *testing.T, most int, ask func(context.Context, inspect.GoneQuery) *inspect.Gone) Target {
	t.Helper()
	s := httptest.NewServer(gone.Handler(ask, most, http.NotFoundHandler()))
	t.Cleanup(s.Close)
	n, err := At(s.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var at = netip.MustParseAddrPort("10.244.1.11:8080")

func says(out bool) func(context.Context, inspect.GoneQuery) *inspect.Gone {
	return func(_ context.Context, q inspect.GoneQuery) *inspect.Gone {
		return &inspect.Gone{Endpoint: inspect.EndpointText(q.At), Gone: out, Services: []inspect.Sender{{Service: "ns/web"}}}
	}
}

// TestWait_UntilAllGone: Wait asks until the endpoint is gone on all nodes.
func TestWait_UntilAllGone(t *testing.T) {
	var asked atomic.Int32
	third := node(t, 1, func(ctx context.Context, q inspect.GoneQuery) *inspect.Gone {
		return says(asked.Add(1) == 5)(ctx, q) // each question looks, and then waits
	})
	changes := 0
	p := Proxies{Targets: []Target{node(t, 1, says(true)), third}, Changed: func([]NodeReport) { changes++ }}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	report := p.Wait(ctx, netip.MustParseAddrPort("[fd00::1]:80"))
	for _, n := range report.Nodes {
		if n.State != "gone" || n.Detail != "" || !report.Gone {
			t.Errorf("%+v", n)
		}
	}
	if asked.Load() != 5 || changes != 4 {
		t.Errorf("asked %d times, %d changes", asked.Load(), changes)
	}
}

// TestWait_TimeoutReportsKnown: when the time is over, Wait reports the known state of each node.
func TestWait_TimeoutReportsKnown(t *testing.T) {
	refuses := httptest.NewServer(http.NotFoundHandler())
	dead, _ := At(refuses.URL)
	refuses.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	old, _ := At(other.URL)
	nodes := []Target{node(t, 1, says(false)), dead, old, Of(kube.NodeAddress{Name: "nowhere"}, 80), node(t, 0, says(true))}
	for ignore, most := range map[bool]time.Duration{true: 8 * time.Second, false: 6 * time.Second} {
		p := Proxies{Targets: nodes, IgnoreUnreachable: ignore}
		ctx, cancel := context.WithTimeout(t.Context(), most)
		all := p.Wait(ctx, at).Nodes
		cancel()
		silent := map[bool]string{true: "ignored: ", false: "unreachable: "}[ignore]
		for i, want := range []string{"in use: $", silent, silent, silent, "unknown: "} {
			want += []string{"", ".*connection refused", "the proxy does not answer about endpoints", ".*no InternalIP", "."}[i]
			if got := all[i].State + ": " + all[i].Detail; !regexp.MustCompile("^" + want).MatchString(got) {
				t.Errorf("ignore %v: %s, want %s", ignore, got, want)
			}
		}
	}
}

// TestAt_RejectsNonProxy: At rejects a text that is not the URL of a proxy.
func TestAt_RejectsNonProxy(t *testing.T) {
	for _, text := range []string{"", "10.0.0.1", "https://10.0.0.1", "http://10.0.0.1/x", "http://10.0.0.1?x", "http://"} {
		if _, err := At(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if n := Of(kube.NodeAddress{Name: "n", Addr: netip.MustParseAddr("fd00::1")}, 1); n.Node != "n" {
		t.Errorf("%+v", n)
	}
}

// TestWait_LongerThanProbeLimits: a wait may take longer than the server of probes allows for other requests, which is
// 10 s; see web.ProbeServer.
func TestWait_LongerThanProbeLimits(t *testing.T) {
	s := httptest.NewUnstartedServer(gone.Handler(func(ctx context.Context, q inspect.GoneQuery) *inspect.Gone {
		a := &inspect.Gone{Endpoint: inspect.EndpointText(q.At)}
		select {
		case <-time.After(q.Wait):
			a.Gone = true
		case <-ctx.Done():
			a.Reason = context.Cause(ctx).Error()
		}
		return a
	}, 1, http.NotFoundHandler()))
	s.Config.ReadTimeout, s.Config.WriteTimeout = 2*time.Second, 2*time.Second
	s.Start()
	defer s.Close()
	n, err := At(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	a, err := n.gone(t.Context(), inspect.GoneQuery{At: at, Wait: 3 * time.Second})
	if err != nil || !a.Gone {
		t.Errorf("%+v, %v", a, errors.Join(err))
	}
}

// TestWait_FirstQueryDoesNotWait: the first query does not wait, so an immediate answer of a node is known even with a
// short timeout, or if a middlebox ends waiting requests early.
func TestWait_FirstQueryDoesNotWait(t *testing.T) {
	var waits []time.Duration
	cut := Target{Node: "cut", gone: func(ctx context.Context, q inspect.GoneQuery) (*inspect.Gone, error) {
		waits = append(waits, q.Wait)
		if q.Wait > 0 {
			return nil, errors.New("timed out")
		}
		return says(false)(ctx, q), nil
	}}
	silent := Target{Node: "silent", gone: func(ctx context.Context, q inspect.GoneQuery) (*inspect.Gone, error) {
		if q.Wait > 0 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return says(false)(ctx, q), nil
	}}
	asked := 0
	lost := Target{Node: "lost", gone: func(ctx context.Context, q inspect.GoneQuery) (*inspect.Gone, error) {
		if asked++; asked > 1 {
			return nil, errors.New("connection refused")
		}
		return says(false)(ctx, q), nil
	}}
	p := Proxies{Targets: []Target{cut, silent, lost}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	report := p.Wait(ctx, at)
	for i, want := range []NodeReport{
		{State: "in use", Detail: "ns/web (, )"},
		{State: "in use", Detail: "ns/web (, )"},
		{State: "unreachable", Detail: "connection refused; the last answer: in use, ns/web (, )"},
	} {
		if n := report.Nodes[i]; n.State != want.State || n.Detail != want.Detail {
			t.Errorf("%+v", n)
		}
	}
	if len(waits) < 3 || waits[0] != 0 || waits[1] == 0 || waits[2] != 0 {
		t.Errorf("the questions wait %v", waits)
	}
}
