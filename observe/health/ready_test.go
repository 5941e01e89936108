// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestReadyHandler: only clients on this host see the names of Services and the kernel's errors.
func TestReadyHandler(t *testing.T) {
	var now Readiness
	get := func(from string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "/readyz", nil)
		r.RemoteAddr, r.Host = from, "localhost:10256"
		w := httptest.NewRecorder()
		ReadyHandler(func() Readiness { return now }).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const here, elsewhere = "127.0.0.1:4000", "192.0.2.1:4000"
	if code, body := get(elsewhere); code != http.StatusOK || body != "ready\n" {
		t.Errorf("%d %q", code, body)
	}
	now.Missing = "the first sync"
	if code, body := get(here); code != http.StatusServiceUnavailable || body != "not ready: the first sync\n" {
		t.Errorf("%d %q", code, body)
	}
	now = Readiness{}
	for range ServicesMax + 1 {
		now.Services = append(now.Services, Affected{Service: "shop/cart", Reason: "no room"})
	}
	if code, body := get(here); code != http.StatusServiceUnavailable || !strings.Contains(body, "shop/cart (no room)") || !strings.HasSuffix(body, " and 1 more\n") {
		t.Errorf("%d %q", code, body)
	}
	if code, body := get(elsewhere); code != http.StatusServiceUnavailable || !strings.Contains(body, "does not follow: 11;") || strings.Contains(body, "shop") || strings.Contains(body, "room") {
		t.Errorf("%d %q", code, body)
	}
}
