// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// floodServices is the number of Services that cause an event at once.
const floodServices = 150

// countingLimiter counts the requests that use it.
type countingLimiter struct {
	flowcontrol.RateLimiter
	used atomic.Int64
}

func (l *countingLimiter) Wait(ctx context.Context) error {
	l.used.Add(1)
	return l.RateLimiter.Wait(ctx)
}

func (l *countingLimiter) Accept() {
	l.used.Add(1)
	l.RateLimiter.Accept()
}

func (l *countingLimiter) TryAccept() bool {
	l.used.Add(1)
	return l.RateLimiter.TryAccept()
}

// TestRecorder_ManyEventsDoNotDelayWatches: a request for Services does not wait for the many events of a tenant who
// creates many Services with a bad annotation.
func TestRecorder_ManyEventsDoNotDelayWatches(t *testing.T) {
	var posted, last atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			if n := posted.Add(1); bytes.Contains(body, []byte("address in use")) {
				last.Store(n)
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json",
		GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
		APIPath: "/api"}
	limit := &countingLimiter{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(5, 10)}
	config.RateLimiter = limit
	r, err := New(t.Context(), Config{Client: config, Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	watches, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range floodServices {
		r.Warn(service.Warning{Object: fmt.Sprintf("Service tenant/s%d", i), Field: "metadata.annotations[x]", Problem: "bad"})
	}
	testenv.Eventually(t, "an event is sent", func() bool { return posted.Load() > 0 })
	time.Sleep(100 * time.Millisecond) // the rest of the burst
	if n := limit.used.Load(); n > 0 {
		t.Errorf("%d events used the limit of watches", n)
	}
	if err := watches.Get().Resource("services").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	// The list did not wait for the other events, which come at the rate of the limiter.
	if most := int64(burst + shareMax/2); posted.Load() > most {
		t.Errorf("%d events were sent before a list of Services, want at most %d", posted.Load(), most)
	}
	if least := uint64(floodServices - burst - shareMax - 5); r.Dropped() < least {
		t.Errorf("%d events were dropped and counted, want at least %d", r.Dropped(), least)
	}
	// An event about the Node does not wait behind those of the tenant.
	before := posted.Load()
	r.HealthcheckFailed(errors.New("address in use"))
	testenv.Eventually(t, "the last event of the process is sent", func() bool { return last.Load() > 0 })
	if ahead := last.Load() - before - 1; ahead > shareMax/2 {
		t.Errorf("%d events were sent before the last one of the process", ahead)
	}
}
