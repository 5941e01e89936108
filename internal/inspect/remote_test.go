// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// remote returns a client of a handler below a path, as behind a proxy.
func remote(t *testing.T, to http.Handler) *Client {
	t.Helper()
	s := httptest.NewServer(http.StripPrefix("/pods/sluice:1/proxy", to))
	t.Cleanup(s.Close)
	base, err := url.Parse(s.URL + "/pods/sluice:1/proxy")
	if err != nil {
		t.Fatal(err)
	}
	return NewRemoteClient("n1", base, http.DefaultTransport)
}

// TestRemote_ReducedAnswers: other hosts get reduced answers: no connections and no dump.
func TestRemote_ReducedAnswers(t *testing.T) {
	c := remote(t, Remote("v1", &stand{services: 2}, false))
	if s, err := c.Status(t.Context()); err != nil || s.Node != "n1" {
		t.Errorf("%+v, %v", s, err)
	}
	if d, err := c.Brief(t.Context(), "ns0", "s00000"); err != nil || d.Name != "s00000" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := c.Brief(t.Context(), "ns0", "a name/with%2Fslashes"); err != nil || d != nil {
		t.Errorf("an unknown Service: %+v, %v", d, err)
	}
	if _, err := c.Connections(t.Context(), &ConnectionQuery{}); err == nil || !strings.Contains(err.Error(), "unexpected response: 404") {
		t.Errorf("connections: %v", err)
	}
	if err := c.Dump(t.Context(), &strings.Builder{}); err == nil {
		t.Error("an archive for another host")
	}
}

// TestRemote_FlowRecords: other hosts get records of connections only if the configuration allows it, and leave some
// streams for the local socket.
func TestRemote_FlowRecords(t *testing.T) {
	none := func(*FlowEvent) error { return nil }
	c := remote(t, Remote("v1", &stand{}, false))
	if err := c.Observe(t.Context(), FlowQuery{}, func() {}, none); !Refused(err) || !strings.Contains(err.Error(), "security.inspection") {
		t.Errorf("%v", err)
	}
	source := &stand{hold: make(chan struct{})}
	c = remote(t, Remote("v1", source, true))
	begun, ended := make(chan struct{}), make(chan error)
	for range remoteFlowsMax {
		go func() { ended <- c.Observe(t.Context(), FlowQuery{}, func() { begun <- struct{}{} }, none) }()
	}
	for range remoteFlowsMax {
		<-begun
	}
	if err := c.Observe(t.Context(), FlowQuery{}, func() {}, none); err == nil || Refused(err) || !strings.Contains(err.Error(), "4 streams") {
		t.Errorf("%v", err)
	}
	close(source.hold)
	for range remoteFlowsMax {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "ended the stream") {
			t.Errorf("%v", err)
		}
	}
}

// TestServiceDetail_Brief: a brief detail omits the objects and counts them.
func TestServiceDetail_Brief(t *testing.T) {
	d := ServiceDetail{Domains: []ServiceDomain{{Objects: make([]Object, 3), Omitted: 4}}}
	d.brief()
	if got := d.Domains[0]; len(got.Objects) != 0 || got.Omitted != 7 {
		t.Errorf("%+v", got)
	}
}

// TestClient_ForeignAnswers: the error of an API server that does not reach the proxy is passed on.
func TestClient_ForeignAnswers(t *testing.T) {
	for body, want := range map[string]string{
		`{"kind":"Status","message":"error trying to reach service: refused"}`: "error trying to reach service: refused",
		"oops": "unexpected response: 503 Service Unavailable: \"oops\"",
	} {
		c := remote(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(body)) // the client reads it
		}))
		if _, err := c.Status(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMergeTop: MergeTop adds the numbers of all lists.
func TestMergeTop(t *testing.T) {
	now := time.Now()
	q := &TopQuery{Kind: "services"}
	if err := q.Check(); err != nil {
		t.Fatal(err)
	}
	all := MergeTop(q, []*TopList{
		{Now: now, From: now.Add(-time.Minute), Counted: TopCounted{Connections: true}, Items: []TopItem{{Name: "a", Connections: 1, BytesIn: 2}, {Name: "b", Connections: 2}}},
		{Now: now.Add(time.Hour), From: now.Add(time.Hour - 30*time.Second), Counted: TopCounted{Bytes: true}, Items: []TopItem{{Name: "a", Connections: 3, BytesOut: 4, Open: 5, Refused: 6}}},
	})
	if want := (TopItem{Name: "a", Connections: 4, BytesIn: 2, BytesOut: 4, Open: 5, Refused: 6}); len(all.Items) != 2 || all.Items[0] != want {
		t.Errorf("%+v", all.Items)
	}
	if span := all.Now.Sub(all.From); span != time.Minute || !all.Counted.Bytes || !all.Counted.Connections {
		t.Errorf("%v, %+v", span, all.Counted)
	}
}
