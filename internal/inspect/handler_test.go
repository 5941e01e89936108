// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// stand is a source with a number of Services in two namespaces.
type stand struct {
	services    int
	connections int
	unready     error
	// hold, if set, keeps every status and every stream waiting.
	hold chan struct{}
	fail error
}

func (s *stand) Status() Status {
	if s.hold != nil {
		<-s.hold
	}
	return Status{Node: "n1"}
}
func (s *stand) Ready(context.Context) error { return s.unready }
func (s *stand) Keys() (keys []service.Key) {
	for i := range s.services {
		keys = append(keys, service.Key{Namespace: fmt.Sprint("ns", 2*i/s.services), Name: fmt.Sprintf("s%05d", i)})
	}
	return keys
}

func (s *stand) Services(_ context.Context, wanted func(service.Key) bool, yield func(*Service) bool) {
	for _, key := range s.Keys() {
		if wanted(key) && !yield(&Service{Namespace: key.Namespace, Name: key.Name, Record: state.Record{State: state.Applied}}) {
			return
		}
	}
}

func (s *stand) Service(_ context.Context, key service.Key) *ServiceDetail {
	if key.Name != "s00000" {
		return nil
	}
	return &ServiceDetail{Service: Service{Namespace: key.Namespace, Name: key.Name}}
}

func (s *stand) Endpoints(_ context.Context, key service.Key) *EndpointList {
	if key.Name != "s00000" {
		return nil
	}
	return &EndpointList{Namespace: key.Namespace, Name: key.Name}
}

func (s *stand) Connections(above uint64, most int, wanted func(*Connection) bool) (found []Connection, more bool, err error) {
	if s.fail != nil {
		return nil, false, s.fail
	}
	for n := above + 1; n <= uint64(s.connections); n++ {
		c := Connection{Number: n, Namespace: "shop", Name: "web", PortName: "http", Protocol: "tcp",
			Client:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n % 2)}), uint16(n)),
			Frontend: netip.MustParseAddrPort("10.96.0.1:80"), Endpoint: netip.MustParseAddrPort("[fd00::1]:8080")}
		if !wanted(&c) {
			continue
		}
		if len(found) == most {
			return found, true, nil
		}
		found = append(found, c)
	}
	return found, false, nil
}

// Top returns all items of the stand for any query.
func (s *stand) Top(_ context.Context, q TopQuery) (*TopList, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	l := &TopList{From: time.Now().Add(-q.Since), Counted: TopCounted{Connections: true, Refused: true}}
	for _, key := range s.Keys() {
		if n := uint64(len(l.Items)); q.Wants(key.Namespace, key.Name) {
			l.Items = append(l.Items, TopItem{Namespace: key.Namespace, Name: key.Name, Connections: n, Refused: 100 - n, Open: 7})
		}
	}
	return l, nil
}

func (s *stand) Observe(ctx context.Context, q FlowQuery, each func(*FlowEvent) error) error {
	if q.Name == "unknown" {
		return errors.New("no records")
	}
	err := each(nil)
	if s.hold != nil {
		<-s.hold
		return err
	}
	for n := range 2 {
		e := &FlowEvent{Flow: traffic.Flow{Verdict: q.Verdicts[n], Namespace: q.Namespace, Name: q.Name, Client: netip.AddrPortFrom(q.Client.Addr(), 1000)}}
		err = errors.Join(err, each(e))
	}
	<-ctx.Done()
	return err
}

func (s *stand) Events() *EventList {
	return &EventList{Omitted: 3, Items: []Event{
		{Time: printedAt, Type: "Normal", Reason: "Starting", About: "Node", Object: "n1"},
		{Time: printedAt, Type: "Warning", Reason: "ServiceQuarantined", Namespace: "a", About: "Service", Object: "web", Note: "rejected"},
	}}
}

func (s *stand) Gone(ctx context.Context, q GoneQuery) *Gone {
	if q.At.Port() == 81 {
		<-ctx.Done()
	}
	return &Gone{Endpoint: EndpointText(q.At), Gone: q.Wait > 0, Services: []Sender{{"ns/a", "nftables/IPv4", "pending"}}}
}

func (s *stand) History(_ context.Context, of *service.Key) (*History, error) {
	h := &History{Counted: TopCounted{Connections: true}}
	for i, key := range s.Keys() {
		if of == nil || *of == key {
			h.Steps = append(h.Steps, HistoryStep{Connections: uint64(i)})
		}
	}
	return h, s.fail
}

func (s *stand) Explain(context.Context, explain.Flow) (*explain.Answer, error) {
	return nil, errors.New("not asked here")
}

func (s *stand) Dump(_ context.Context, to io.Writer) error {
	_, _ = io.WriteString(to, strings.Repeat("archive", 10_000))
	return s.fail
}

// served serves a source at a socket, and returns a client.
func served(t *testing.T, source Source) *Client {
	t.Helper()
	return servedBy(t, Handler("v1", source))
}

func servedBy(t *testing.T, h http.Handler) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: h}}
	server.Start()
	t.Cleanup(server.Close)
	return NewClient(path)
}

func TestClient_Answers(t *testing.T) {
	ctx, c := t.Context(), served(t, &stand{services: 10_000})
	if s, err := c.Status(ctx); err != nil || s.Node != "n1" || s.APIVersion != Version {
		t.Errorf("%+v, %v", s, err)
	}
	if l, err := c.Services(ctx, ""); err != nil || len(l.Items) != 10_000 || l.Items[9999].Name != "s09999" || l.APIVersion != Version {
		t.Errorf("%v", err)
	}
	if l, err := c.Services(ctx, "ns1"); err != nil || len(l.Items) != 5000 {
		t.Errorf("%v", err)
	}
	if l, err := c.Services(ctx, "nowhere"); err != nil || l.Items == nil || len(l.Items) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if s, err := c.Service(ctx, "ns0", "s00000"); err != nil || s.Name != "s00000" || s.APIVersion != Version || s.Now.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
	if l, err := c.Endpoints(ctx, "ns0", "s00000"); err != nil || l.Name != "s00000" || l.APIVersion != Version {
		t.Errorf("%+v, %v", l, err)
	}
	if n, err := c.Names(ctx, ""); err != nil || len(n.Namespaces) != 2 || n.Services[9999] != "ns1/s09999" {
		t.Errorf("%v", err)
	}
	if n, err := c.Names(ctx, "ns1"); err != nil || len(n.Services) != 5000 || n.Services[0] != "s05000" {
		t.Errorf("%v", err)
	}
	var archive strings.Builder
	if err := c.Dump(ctx, &archive); err != nil || archive.Len() != 70_000 {
		t.Errorf("%d bytes, %v", archive.Len(), err)
	}
}

func TestClient_Failures(t *testing.T) {
	ctx := t.Context()
	c := served(t, &stand{services: 1})
	if _, err := c.Service(ctx, "ns0", "other"); err == nil || !strings.HasPrefix(err.Error(), "unknown Service ns0/other: this proxy does not have it") {
		t.Error(err)
	}
	if _, err := get[Status](ctx, c, "/"+Version+"/frob", nil); err == nil || !strings.Contains(err.Error(), "no such question") {
		t.Error(err)
	}
	if _, err := served(t, &stand{unready: errors.New("not yet")}).Names(ctx, ""); err == nil || err.Error() != "not yet" {
		t.Error(err)
	}
	if err := served(t, &stand{fail: errors.New("broken")}).Dump(ctx, io.Discard); err == nil || !strings.Contains(err.Error(), "incomplete") {
		t.Error(err)
	}
	half := servedBy(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(headerAPI, Version)
		_, _ = io.WriteString(w, `{"node":`)
	}))
	if _, err := half.Status(ctx); err == nil || !strings.Contains(err.Error(), "incomplete response") {
		t.Error(err)
	}
}

// TestClient_RepeatsOnce: the client repeats a failed query once, because the proxy may have just started.
func TestClient_RepeatsOnce(t *testing.T) {
	asked := 0
	h := Handler("v1", &stand{services: 1})
	c := servedBy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	if s, err := c.Status(t.Context()); err != nil || s.Node != "n1" || asked != 2 {
		t.Errorf("%+v, %v, asked %d times", s, err, asked)
	}
}

// TestHandler_TooManyQuestions: queries beyond the limit get an answer that asks to retry later.
func TestHandler_TooManyQuestions(t *testing.T) {
	s := &stand{hold: make(chan struct{})}
	h := Handler("v1", s)
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, PathStatus, nil))
		return w
	}
	answers := make(chan int, requestsMax)
	for range requestsMax {
		go func() { answers <- ask().Code }()
	}
	deadline := time.Now().Add(time.Minute)
	for len(h.(*handler).places) < requestsMax && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if w := ask(); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d", w.Code)
	}
	close(s.hold)
	for range requestsMax {
		if code := <-answers; code != http.StatusOK {
			t.Errorf("status %d", code)
		}
	}
	if w := ask(); w.Code != http.StatusOK {
		t.Errorf("afterwards: status %d", w.Code)
	}
}

func TestHandler_RejectsPost(t *testing.T) {
	w := httptest.NewRecorder()
	Handler("v1", &stand{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, PathStatus, nil))
	if w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusNotFound {
		t.Errorf("POST: status %d", w.Code)
	}
}
