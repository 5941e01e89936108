// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestGone(t *testing.T) {
	ctx, c := t.Context(), served(t, &stand{services: 1})
	for text, wait := range map[string]time.Duration{"10.0.0.1:80": 0, "[fd00::1]:80": time.Second, "fd00::1": time.Hour} {
		at, err := ParseEndpoint(text)
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Gone(ctx, GoneQuery{At: at, Wait: wait})
		if err != nil || a.Endpoint != text || a.Gone != (wait > 0) || a.APIVersion != Version || a.Services[0].State != "pending" {
			t.Errorf("%s: %+v, %v", text, a, err)
		}
	}
	for path, want := range map[string]string{
		"ten": `endpoint "ten": must be an address`, "10.0.0.1:0": "must be an address", "fe80::1%25eth0": "must be an address",
		"10.0.0.1?wait=x": `wait "x": must be a duration`, "10.0.0.1?wait=-1s": "must be a duration",
	} {
		w := httptest.NewRecorder()
		Handler("v1", &stand{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, strings.Replace(PathGone, "{endpoint}", path, 1), nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(strings.ReplaceAll(w.Body.String(), `\"`, `"`), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if q, err := ParseGoneQuery("::ffff:10.0.0.1", "1h"); err != nil || q.Wait != GoneWaitMax || q.At != netip.MustParseAddrPort("10.0.0.1:0") && q.At.Addr() != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestHandler_GoneHasOwnPlaces: waiting queries about endpoints leave room for other queries, because they have their
// own places.
func TestHandler_GoneHasOwnPlaces(t *testing.T) {
	h := Handler("v1", &stand{services: 1})
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(t.Context()))
		return w
	}
	for range requestsMax {
		go ask(strings.Replace(PathGone, "{endpoint}", "10.0.0.1:81", 1)) // waits until the end
	}
	for deadline := time.Now().Add(time.Minute); len(h.(*handler).asking) < requestsMax && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if w := ask(strings.Replace(PathGone, "{endpoint}", "10.0.0.1:80", 1)); w.Code != http.StatusTooManyRequests {
		t.Errorf("one too many: %d", w.Code)
	}
	if w := ask(PathStatus); w.Code != http.StatusOK {
		t.Errorf("status: %d", w.Code)
	}
}
