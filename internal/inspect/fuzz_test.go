// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// FuzzRequest sends any bytes to the local socket's handler. Each answer has a known status, the headers by which a
// client recognizes the proxy, valid JSON and a limited size.
func FuzzRequest(f *testing.F) {
	for _, line := range []string{
		"GET /" + Version + "/status HTTP/1.1\r\nHost: sluice\r\n\r\n",
		"GET /" + Version + "/services?namespace=ns0 HTTP/1.1\r\nHost: sluice\r\n\r\n",
		"GET /" + Version + "/services/ns0/s00000 HTTP/1.1\r\nHost: sluice\r\n\r\n",
		"GET /" + Version + "/explain?from=10.0.0.1&to=10.96.0.1:80/tcp&iface=%0a HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /" + Version + "/dump HTTP/1.0\r\n\r\n", "PUT //" + Version + "/../%2e%2e/%00?a=%zz HTTP/1.1\r\nHost: \r\n\r\n",
	} {
		f.Add([]byte(line))
	}
	handler := Handler("v1", &stand{services: 3})
	f.Fuzz(func(t *testing.T, text []byte) {
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		switch answer.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusInternalServerError,
			http.StatusMovedPermanently, http.StatusTemporaryRedirect:
		default:
			t.Errorf("status %d", answer.Code)
		}
		header := answer.Header()
		if header.Get(headerAPI) != Version {
			t.Errorf("headers %v", header)
		}
		if header.Get("Content-Type") == "application/json" && !json.Valid(answer.Body.Bytes()) {
			t.Errorf("no JSON: %q", answer.Body)
		}
		if answer.Body.Len() > 100_000+10*len(text) {
			t.Errorf("%d bytes of answer", answer.Body.Len())
		}
	})
}

// FuzzAnswer reads any bytes as the answer of a proxy, which may be of another release or no proxy at all, and prints
// them.
func FuzzAnswer(f *testing.F) {
	f.Add(`{"node":"n1","items":[{"namespace":"ns","name":"web","ports":[{"port":80}],"state":"applied"}]}`)
	f.Add(`{"ports":[{}]}`)
	f.Add(`{"domains":[{}],"service":{"endpoints":[{}]},"changes":[{}],"quarantine":{"reason":"x"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		out := terminal.Page{Wide: true}
		for _, made := range []Answer{new(Status), new(ServiceList), new(ServiceDetail), new(EndpointList), new(ConnectionList), new(explain.Answer)} {
			if json.Unmarshal([]byte(text), made) == nil {
				made.Print(&out)
				out.Wide = !out.Wide
			}
		}
	})
}
