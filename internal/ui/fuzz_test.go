// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

// FuzzFeed: with any state that a page sends, and any name of a Service, the answer is valid JSON that no browser takes
// for a document.
func FuzzFeed(f *testing.F) {
	f.Add("", "0", "ns", "web", "same-origin")
	f.Add("x", "18446744073709551616", "</script><script>alert(1)</script>", "\u2028\x00\xff", "cross-site")
	f.Fuzz(func(t *testing.T, epoch, since, namespace, name, site string) {
		source := &fake{services: []inspect.Service{{Namespace: namespace, Name: name}}}
		handler := Handler(http.NotFoundHandler(), source)
		request := httptest.NewRequest(http.MethodGet, "/ui/api"+pathChanges, nil)
		query := request.URL.Query()
		query.Set("epoch", epoch)
		query.Set("since", since)
		request.URL.RawQuery = query.Encode()
		request.Header["Sec-Fetch-Site"] = []string{site}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if site == "cross-site" {
			if answer.Code != http.StatusForbidden {
				t.Errorf("status %d for another site", answer.Code)
			}
			return
		}
		var c Changes
		if err := json.Unmarshal(answer.Body.Bytes(), &c); err != nil || answer.Code != http.StatusOK || !c.Full || len(c.Items) != 1 {
			t.Errorf("status %d: %s, %v", answer.Code, answer.Body, err)
		}
		if answer.Header().Get("X-Content-Type-Options") != "nosniff" || strings.ContainsAny(answer.Body.String(), "<>") {
			t.Errorf("a document: %s", answer.Body)
		}
	})
}

// TestAssets_SetTextOnly: names reach the page as text, never as HTML.
func TestAssets_SetTextOnly(t *testing.T) {
	entries, err := assets.ReadDir("assets")
	if err != nil || len(entries) == 0 {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := assets.ReadFile("assets/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "createContextualFragment"} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s uses %s", entry.Name(), word)
			}
		}
	}
}
