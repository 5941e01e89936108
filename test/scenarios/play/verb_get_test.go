// SPDX-License-Identifier: Apache-2.0

package play

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

func TestParseResponse(t *testing.T) {
	for text, want := range map[string]string{
		"refused":                "refused",
		"silence":                "silence",
		"200":                    "status 200",
		"503 a.b=1 header:X=2.*": "status 503",
	} {
		if got, err := parseResponse(strings.Fields(text)); err != nil || got.String() != want {
			t.Errorf("%s: got %v, error %v, want %s", text, got, err, want)
		}
	}
	if got, _ := parseResponse([]string{"silence"}); got.fate != fixture.Silent || got.status != 0 {
		t.Errorf("silence: got %+v", got)
	}
	for text, want := range map[string]string{
		"refused x=1": "nothing more to see",
		"often":       "want refused, silence, or a status",
		"200 healthy": "want FIELD=VALUE",
		"200 x=(":     "missing closing",
	} {
		if _, err := parseResponse(strings.Fields(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want …%s…", text, err, want)
		}
	}
}

// TestResponse_Compared: a response is compared by status, fields, headers and body.
func TestResponse_Compared(t *testing.T) {
	got := received{
		status: http.StatusOK, header: http.Header{"X-Weight": {"2"}},
		body: []byte(`{"service": {"name": "svc1"}, "localEndpoints": 12, "serviceProxyHealthy": true}`),
	}
	for text, problem := range map[string]string{
		"200 service.name=svc1 localEndpoints=12 serviceProxyHealthy=true header:X-Weight=2 body=.*svc1.*": "",
		"503":                            "status 200, want 503",
		"200 localEndpoints=1":           `localEndpoints is "12", want`,
		"200 header:X-Weight=1":          `header:X-Weight is "2"`,
		"200 service.namespace=ns1":      "there is no field service.namespace",
		"200 localEndpoints.deep=1":      "there is no field localEndpoints.deep",
		"200 body=svc1":                  "body is",
		"200 serviceProxyHealthy=false ": `serviceProxyHealthy is "true"`,
	} {
		want, err := parseResponse(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		err = want.compare(got)
		if (err == nil) != (problem == "") || (err != nil && !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s: error %v, want …%s…", text, err, problem)
		}
	}
}
