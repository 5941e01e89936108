// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

const asFlagz = ";as=Flagz;g=config.k8s.io;v="

// TestZPages_StructuredAnswers: z-pages return JSON or YAML in the requested version, and 406 if there is none.
func TestZPages_StructuredAnswers(t *testing.T) {
	testRequests(t, site(), []request{
		{path: "/flagz", accept: JSON + asFlagz + zVersion, code: 200, mediaType: JSON,
			text: `{"apiVersion":"config.k8s.io/v1beta1","flags":{"proxy-mode":"nftables","v":"2"},"kind":"Flagz","metadata":{"name":"kube-proxy"}}`, exact: true},
		{path: "/flagz", accept: mediaYAML + asFlagz + zDeprecated, code: 200, mediaType: mediaYAML,
			text: "apiVersion: config.k8s.io/v1alpha1\nflags:\n  proxy-mode: nftables\n  v: \"2\"\nkind: Flagz\nmetadata:\n  name: kube-proxy\n", exact: true},
		{path: "/flagz", accept: JSON, code: 406, text: "as=Flagz"},
		{path: "/flagz", accept: "application/json;as=Statusz;g=config.k8s.io;v=v1beta1", code: 406},
		{path: "/flagz", accept: "*/*", code: 200, mediaType: Text},
	})
	handler := site().Handler()
	ask := httptest.NewRequest(http.MethodGet, "/statusz", nil)
	ask.Header.Set("Accept", "application/json;as=Statusz;g=config.k8s.io;v=v1alpha1, text/plain;q=0.5")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, ask)
	var object struct {
		Kind, APIVersion, GoVersion, BinaryVersion, SluiceVersion string
		StartTime                                                 time.Time
		UptimeSeconds                                             int
		Paths                                                     []string
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	if object.Kind != "Statusz" || object.APIVersion != "config.k8s.io/v1alpha1" || object.BinaryVersion != "1.37.2" || object.SluiceVersion != "v0.9" ||
		object.UptimeSeconds < 90 || object.StartTime.IsZero() || !strings.HasPrefix(object.GoVersion, "go1.") || len(object.Paths) != 5 {
		t.Errorf("got %s", answer.Body)
	}
	if got := answer.Header().Get("Warning"); !strings.Contains(got, "299") || !strings.Contains(got, "deprecated") {
		t.Errorf("warning %q", got)
	}
}

func TestNegotiate(t *testing.T) {
	structured := form{JSON, zVersion}
	for header, want := range map[string]form{
		"":    {mediaText, ""},
		" ":   {mediaText, ""},
		"*/*": {mediaText, ""},
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": {mediaText, ""},
		JSON + asFlagz + zVersion:                       structured,
		"application/*" + asFlagz + zVersion:            structured,
		mediaYAML + asFlagz + zVersion:                  {mediaYAML, zVersion},
		"text/plain;q=0.1," + JSON + asFlagz + zVersion: structured,
		"*/*," + JSON + asFlagz + zVersion:              structured,
		JSON + asFlagz + zVersion + ";q=0,text/plain":   {mediaText, ""},
		"bro/ken/type," + JSON + asFlagz + zVersion:     structured,
		JSON + asFlagz + zVersion + ";q=x,text/*":       {mediaText, ""},
	} {
		if got, ok := negotiate(header, "Flagz"); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q returns %v %t, want %v", header, got, ok, want)
		}
	}
	for _, header := range []string{JSON, "image/png", JSON + asFlagz + "v2", "text/plain" + asFlagz + zVersion, "application/vnd.kubernetes.protobuf"} {
		if got, ok := negotiate(header, "Flagz"); ok {
			t.Errorf("%q returns %v", header, got)
		}
	}
}

func TestPrefersJSON(t *testing.T) {
	tests := []struct {
		accept string
		want   bool
	}{
		{"", false},
		{"*/*", false},
		{"application/json", true},
		{"application/json; charset=utf-8", true},
		{"application/*", true},
		{"text/html, application/json;q=0.9, */*;q=0.8", true},
		{"text/plain", false},
		{"text/plain, application/json", false},
		{"text/plain;q=0.5, application/json", true},
		{"text/plain, application/json;q=0.9", false},
		{"text/*;q=0.1,application/json;q=0.2", true},
		{"application/json;q=0", false},
		{"application/json;q=high", false},
		{"application/vnd.kubernetes.protobuf", false},
		{";;,application/json", true},
		{"application/jsonx", false},
	}
	for _, tt := range tests {
		if got := PrefersJSON(tt.accept); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.accept, got, tt.want)
		}
	}
}

func TestWeight(t *testing.T) {
	for accept, want := range map[string]float64{
		"": 0, "*/*": 0, "application/json": 1, "text/plain, application/json;q=0.2, */*": 0.2, "application/*;q=0.3": 0.3,
	} {
		if got := weight(accept, JSON); got != want {
			t.Errorf("%q: got %v, want %v", accept, got, want)
		}
	}
}
