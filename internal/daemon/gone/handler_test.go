// SPDX-License-Identifier: Apache-2.0

package gone

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

func says(gone bool) func(context.Context, inspect.GoneQuery) *inspect.Gone {
	return func(_ context.Context, q inspect.GoneQuery) *inspect.Gone {
		return &inspect.Gone{Endpoint: inspect.EndpointText(q.At), Gone: gone, Services: []inspect.Sender{{Service: "ns/web"}}}
	}
}

func TestHandler(t *testing.T) {
	h := Handler(says(false), 1, http.NotFoundHandler())
	for _, c := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/endpoints/10.0.0.1:80", 200, `{"endpoint":"10.0.0.1:80","gone":false,"at":"0001-01-01T00:00:00Z"}` + "\n"},
		{"GET", "/endpoints/::ffff:10.0.0.1?wait=5s", 200, `"endpoint":"10.0.0.1"`},
		{"GET", "/endpoints/[fd00::1]:80?wait=99h", 200, `"endpoint":"[fd00::1]:80"`},
		{"GET", "/endpoints/", 400, `"error":"endpoint`},
		{"GET", "/endpoints/10.0.0.1:0", 400, `"error":"endpoint`},
		{"GET", "/endpoints/fe80::1%25eth0", 400, `"error":"endpoint`},
		{"GET", "/endpoints/10.0.0.1?wait=-1s", 400, `"error":"wait`},
		{"POST", "/endpoints/10.0.0.1", 405, `"error":"only GET`},
		{"GET", "/healthz", 404, "404"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) || strings.Contains(w.Body.String(), "web") {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}
