// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"sigs.k8s.io/yaml"
)

// FuzzRequest sends any Accept header, query and body to every page: each answer has a known status, and is JSON or
// YAML if its header says so.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/flagz", "", "application/json;as=Flagz;g=config.k8s.io;v=v1beta1,text/plain;q=0.5", "")
	f.Add("PUT", "/debug/flags/v", "", "", "99999999999999999999\x1b[2J")
	f.Add("GET", "/metrics", "limit=-1\r\nX: y", "*/*;q=NaN", "")
	f.Add("GET", "/statusz", "", "application/json;q=05,text/plain;q=-1", "")
	f.Add("GET", "/statusz", "", `text/plain;a="\`, "")
	handler := site().Handler()
	f.Fuzz(func(t *testing.T, method, path, query, accept, body string) {
		var request = httptest.NewRequest("GET", "/", nil)
		if len(path) > 0 && path[0] == '/' && len(path) < 100 && !profiles(path) {
			request.URL.Path = path
		}
		request.Method, request.URL.RawQuery = method, query
		request.Header["Accept"] = []string{accept}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code < 200 || answer.Code > 599 || answer.Code == 500 {
			t.Errorf("%q %q: status %d: %s", method, path, answer.Code, answer.Body)
		}
		text := answer.Body.Bytes()
		var made any
		switch kind := answer.Header().Get("Content-Type"); {
		case kind == JSON && !json.Valid(text), kind == mediaYAML && yaml.Unmarshal(text, &made) != nil:
			t.Errorf("no %s: %q", kind, text)
		}
		for _, c := range parseAccept(accept) {
			if q := weight(accept, c.kind+"/"+c.subkind); q < 0 || q > 1 {
				t.Errorf("%q has the weight %v in %q", c.kind, q, accept)
			}
		}
	})
}

// profiles reports whether a page takes time by its nature.
func profiles(path string) bool { return len(path) > 12 && path[:12] == "/debug/pprof" }
