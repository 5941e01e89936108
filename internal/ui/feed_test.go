// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// fake is a proxy with some Services, which counts how often it is asked for all of them.
type fake struct {
	services []inspect.Service
	walks    int
	// stop ends a walk behind as many Services, by its client; 0 does not.
	stop   int
	cancel context.CancelFunc
}

func (f *fake) Services(ctx context.Context, wanted func(service.Key) bool, yield func(*inspect.Service) bool) {
	f.walks++
	for i := range f.services {
		if f.stop != 0 && i == f.stop {
			f.cancel()
		}
		if !yield(&f.services[i]) {
			return
		}
	}
}

func (f *fake) Status() inspect.Status                                       { return inspect.Status{Node: "n1"} }
func (f *fake) Ready(context.Context) error                                  { return nil }
func (f *fake) Keys() []service.Key                                          { return nil }
func (f *fake) Service(context.Context, service.Key) *inspect.ServiceDetail  { return nil }
func (f *fake) Endpoints(context.Context, service.Key) *inspect.EndpointList { return nil }
func (f *fake) Dump(context.Context, io.Writer) error                        { return nil }
func (f *fake) Connections(uint64, int, func(*inspect.Connection) bool) ([]inspect.Connection, bool, error) {
	return nil, false, nil
}
func (f *fake) Explain(context.Context, explain.Flow) (*explain.Answer, error)  { return nil, nil }
func (f *fake) Top(context.Context, inspect.TopQuery) (*inspect.TopList, error) { return nil, nil }
func (f *fake) Events() *inspect.EventList                                      { return &inspect.EventList{} }
func (f *fake) Gone(context.Context, inspect.GoneQuery) *inspect.Gone           { return &inspect.Gone{} }

func (f *fake) Observe(context.Context, inspect.FlowQuery, func(*inspect.FlowEvent) error) error {
	return nil
}
func (f *fake) History(context.Context, *service.Key) (*inspect.History, error) { return nil, nil }

func (f *fake) fill(count int) {
	for n := range count {
		f.services = append(f.services, inspect.Service{Namespace: "ns", Name: fmt.Sprintf("s%05d", n), Record: state.Record{State: state.Applied}})
	}
}

// answer asks the feed and returns what it says, with the names of the items.
func answer(t testing.TB, f *feed, epoch string, since uint64) (c Changes, names []string) {
	t.Helper()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/?epoch=%s&since=%d", epoch, since), nil))
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	for _, item := range c.Items {
		var r row
		if err := json.Unmarshal(item, &r); err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return c, names
}

// TestFeed_SendsOnlyChanges: the feed sends a page only the changes since its last answer.
func TestFeed_SendsOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{}
		source.fill(3)
		f := newFeed(source)
		first, names := answer(t, f, "", 0)
		if !first.Full || len(names) != 3 || first.Status.Node != "n1" || first.Status.APIVersion != inspect.Version {
			t.Fatalf("%+v, %v", first, names)
		}
		source.services[1].Endpoints = 7
		if c, names := answer(t, f, first.Epoch, first.Revision); c.Full || len(names) != 0 || source.walks != 1 {
			t.Errorf("within %v it asked again: %+v, %v, %d walks", refresh, c, names, source.walks)
		}
		time.Sleep(refresh)
		second, names := answer(t, f, first.Epoch, first.Revision)
		if second.Full || !slices.Equal(names, []string{"s00001"}) {
			t.Errorf("%+v, %v", second, names)
		}
		if c, names := answer(t, f, second.Epoch, second.Revision); c.Revision != second.Revision || len(names) != 0 {
			t.Errorf("%+v, %v", c, names)
		}
		source.services = source.services[:2]
		time.Sleep(refresh)
		third, names := answer(t, f, second.Epoch, second.Revision)
		if len(names) != 0 || !slices.Equal(third.Gone, []string{"ns/s00002"}) {
			t.Errorf("%+v, %v", third, names)
		}
		// A page that is further behind is sent all of it, and one of another process everything.
		if c, names := answer(t, f, first.Epoch, first.Revision); c.Full || len(c.Gone) != 1 || !slices.Equal(names, []string{"s00001"}) {
			t.Errorf("%+v, %v", c, names)
		}
		for _, c := range []struct {
			epoch string
			since uint64
		}{{"other", third.Revision}, {third.Epoch, third.Revision + 1}} {
			if got, names := answer(t, f, c.epoch, c.since); !got.Full || len(names) != 2 || len(got.Gone) != 0 {
				t.Errorf("%v: %+v, %v", c, got, names)
			}
		}
		time.Sleep(2 * forget)
		f.mu.Lock()
		kept := f.picture
		f.mu.Unlock()
		if kept != nil {
			t.Error("nobody asks, and the picture is still there")
		}
		if c, _ := answer(t, f, third.Epoch, third.Revision); !c.Full || c.Epoch == third.Epoch {
			t.Errorf("%+v: the picture is another one", c)
		}
		time.Sleep(2 * forget)
	})
}

// TestFeed_InterruptedWalkRemovesNothing: an interrupted walk over the Services removes none from the page.
func TestFeed_InterruptedWalkRemovesNothing(t *testing.T) {
	source := &fake{}
	source.fill(10)
	f := newFeed(source)
	f.changes(context.Background(), "", 0)
	f.picture.taken = time.Time{}
	ctx, cancel := context.WithCancel(context.Background())
	source.stop, source.cancel = 4, cancel
	f.changes(ctx, "", 0)
	if len(f.picture.rows) != 10 || len(f.picture.gone) != 0 {
		t.Errorf("%d Services, gone %v", len(f.picture.rows), f.picture.gone)
	}
	f.idle.Stop()
}

// TestFeed_ForgottenDeletionsSendFullState: if the feed has forgotten deletions, it sends the page the full state.
func TestFeed_ForgottenDeletionsSendFullState(t *testing.T) {
	source := &fake{}
	source.fill(goneMax + 2)
	f := newFeed(source)
	first := f.changes(context.Background(), "", 0)
	source.services = source.services[:1]
	f.picture.taken = time.Time{}
	if c := f.changes(context.Background(), first.Epoch, first.Revision); !c.Full || len(c.Items) != 1 || len(f.picture.gone) != 0 {
		t.Errorf("full: %v, %d items, %d remembered", c.Full, len(c.Items), len(f.picture.gone))
	}
	f.idle.Stop()
}

// TestHandler_StrictPolicyAndSameOrigin: the content security policy is strict, and only the page's own queries are
// answered, and only to the page itself.
func TestHandler_StrictPolicyAndSameOrigin(t *testing.T) {
	asked := ""
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked = r.URL.Path })
	h := Handler(api, &fake{})
	for _, c := range []struct {
		method, path, site string
		code               int
		asked, kind        string
	}{
		{"GET", "/ui/", "none", 200, "", "text/html"},
		{"GET", "/ui/main.js", "same-origin", 200, "", "javascript"},
		{"GET", "/ui/style.css", "", 200, "", "text/css"},
		{"GET", "/ui/nothing", "", 404, "", ""},
		{"GET", "/ui/../feed.go", "", 307, "", ""},
		{"GET", "/ui/api/v1alpha1/services/ns/a", "", 200, "/v1alpha1/services/ns/a", ""},
		{"GET", "/ui/api/v1alpha1/services/ns/a/endpoints", "same-origin", 200, "/v1alpha1/services/ns/a/endpoints", ""},
		{"GET", "/ui/api/v1alpha1/explain?from=a", "same-origin", 200, "/v1alpha1/explain", ""},
		{"GET", "/ui/api/v1alpha1/top/services?since=15m", "same-origin", 200, "/v1alpha1/top/services", ""},
		{"GET", "/ui/api/v1alpha1/history", "same-origin", 200, "/v1alpha1/history", ""},
		{"GET", "/ui/api/v1alpha1/connections?limit=20", "same-origin", 200, "/v1alpha1/connections", ""},
		{"GET", "/ui/api/v1alpha1/history", "cross-site", 403, "", ""},
		{"GET", "/ui/api/v1alpha1/names", "", 404, "", ""},
		{"GET", "/ui/api/v1alpha1/services/ns/a", "cross-site", 403, "", ""},
		{"GET", "/ui/api/v1alpha1/changes", "cross-site", 403, "", ""},
		{"GET", "/ui/api/v1alpha1/dump", "", 404, "", ""},
		{"GET", "/ui/api/v1alpha1/changes", "", 200, "", "application/json"},
		{"POST", "/ui/api/v1alpha1/changes", "", 405, "", ""},
		{"PUT", "/ui/", "", 405, "", ""},
	} {
		asked = ""
		r := httptest.NewRequest(c.method, c.path, nil)
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || asked != c.asked || !strings.Contains(w.Header().Get("Content-Type"), c.kind) {
			t.Errorf("%s %s: %d, asked %q, %s; want %+v", c.method, c.path, w.Code, asked, w.Header().Get("Content-Type"), c)
		}
		if got := w.Header().Get("Content-Security-Policy"); c.code == 200 && (!strings.HasPrefix(got, "default-src 'none'; script-src 'self';") || strings.Contains(got, "unsafe")) {
			t.Errorf("%s: policy %q", c.path, got)
		}
	}
}

// TestHandler_CachedFileNotModified: a browser that already has a file gets 304 Not Modified.
func TestHandler_CachedFileNotModified(t *testing.T) {
	h := Handler(http.NotFoundHandler(), &fake{})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ui/main.js", nil))
	r := httptest.NewRequest(http.MethodGet, "/ui/main.js", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	h.ServeHTTP(again, r)
	if again.Code != http.StatusNotModified || w.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("%d, %v", again.Code, w.Header())
	}
}

// TestAssets_SelfContained: the files use no markup from texts, no other host, and no inline script or style.
func TestAssets_SelfContained(t *testing.T) {
	names, err := assets.ReadDir("assets")
	if err != nil || len(names) < 8 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, entry := range names {
		text, err := assets.ReadFile("assets/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", " style=", " onclick=", "https://"} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s has %q", entry.Name(), word)
			}
		}
	}
}

func BenchmarkChanges(b *testing.B) {
	source := &fake{}
	source.fill(10_000)
	f := newFeed(source)
	first := f.changes(context.Background(), "", 0)
	b.ReportAllocs()
	for b.Loop() {
		f.picture.taken = time.Time{}
		f.changes(context.Background(), first.Epoch, first.Revision)
	}
	f.idle.Stop()
}
