// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

var (
	web    = service.Key{Namespace: "shop", Name: "web"}
	client = netip.MustParseAddrPort("10.9.0.1:4000")
	server = netip.MustParseAddrPort("10.0.0.1:80")
	pod    = netip.MustParseAddrPort("10.1.0.1:8080")
)

// testHub has Services of a map.
func testHub(specs map[service.Key]service.Snapshot) *Hub {
	return New(Config{
		Snapshot: func(key service.Key) service.Snapshot { return specs[key] },
		Facts:    func() *service.NodeFacts { return &service.NodeFacts{} },
		Keys:     func() []service.Key { return nil }, Failed: func(error) {}, Relayed: true,
	})
}

func subscribe(t *testing.T, h *Hub, f Filter) *Subscription {
	t.Helper()
	s, err := h.Subscribe(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// take returns what waits, as one text for each record.
func take(s *Subscription) (all []string) {
	for len(s.C) > 0 {
		f := <-s.C
		all = append(all, strings.TrimSpace(fmt.Sprintln(f.Verdict, f.Port, f.Client, f.Frontend, f.Endpoint.IsValid(), f.Start.IsZero(), f.BytesIn, f.Reason)))
	}
	return all
}

// TestTable_OneRecordPerConnection: each connection has one record, independent of the kernel's announcements.
func TestTable_OneRecordPerConnection(t *testing.T) {
	type step struct {
		kind    conntrack.EventKind
		packet  bool
		state   string
		replied bool
		bytes   uint64
		after   time.Duration
		lost    bool
		// wait says that nothing is announced.
		wait bool
		// elsewhere says that the Service has only the port, and that the rules do not translate the connection.
		elsewhere bool
	}
	for name, c := range map[string]struct {
		steps []step
		want  []string
	}{
		"closed, with counters at the close": {
			[]step{{packet: true}, {kind: conntrack.Began}, {kind: conntrack.Changed, state: "TIME_WAIT", replied: true, bytes: 9}, {kind: conntrack.Ended, state: "TIME_WAIT", replied: true, bytes: 9}},
			[]string{"closed http 10.9.0.1:4000 10.0.0.1:80 true false 9"},
		},
		"ended without a close": {
			[]step{{kind: conntrack.Began}, {kind: conntrack.Ended, replied: true, bytes: 7}}, []string{"closed http 10.9.0.1:4000 10.0.0.1:80 true false 7"},
		},
		"began before": {
			[]step{{kind: conntrack.Ended, replied: true, bytes: 7}}, []string{"closed http 10.9.0.1:4000 10.0.0.1:80 true true 7"},
		},
		"closed before": {[]step{{kind: conntrack.Ended, state: "TIME_WAIT", replied: true}}, nil},
		"the same ports again": {
			[]step{{kind: conntrack.Began}, {kind: conntrack.Changed, state: "TIME_WAIT", replied: true}, {kind: conntrack.Ended, replied: true},
				{kind: conntrack.Began}, {kind: conntrack.Changed, state: "CLOSE", replied: true, bytes: 1}},
			[]string{"closed http 10.9.0.1:4000 10.0.0.1:80 true false 0", "closed http 10.9.0.1:4000 10.0.0.1:80 true false 1"},
		},
		"refused by the endpoint": {
			[]step{{kind: conntrack.Began}, {kind: conntrack.Ended, state: "CLOSE"}}, []string{"closed http 10.9.0.1:4000 10.0.0.1:80 true false 0 endpoint-refused"},
		},
		"unanswered": {
			[]step{{kind: conntrack.Began}, {packet: true}, {packet: true, after: 3 * time.Second}, {kind: conntrack.Ended, state: "SYN_SENT"}},
			[]string{"closed http 10.9.0.1:4000 10.0.0.1:80 true false 0 unanswered"},
		},
		"vanished": {
			[]step{{packet: true}, {packet: true, after: time.Second}, {wait: true, after: patience}}, []string{"dropped http 10.9.0.1:4000 10.0.0.1:80 false false 0 other-rules"},
		},
		"the packet is heard of late": {
			[]step{{kind: conntrack.Began}, {kind: conntrack.Ended, replied: true}, {packet: true}, {wait: true, after: 2 * patience}},
			[]string{"closed http 10.9.0.1:4000 10.0.0.1:80 true false 0"},
		},
		"the same port of another node": {
			[]step{{packet: true}, {kind: conntrack.Began, elsewhere: true}, {kind: conntrack.Changed, state: "TIME_WAIT", replied: true, elsewhere: true},
				{kind: conntrack.Ended, state: "TIME_WAIT", replied: true, elsewhere: true}, {wait: true, after: 2 * patience}}, nil,
		},
		"events were lost": {[]step{{packet: true}, {lost: true}, {packet: true}, {wait: true, after: 2 * patience}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := testHub(map[service.Key]service.Snapshot{web: {Spec: &service.Spec{
				Key: web, Ports: []service.Port{{Name: "http", Protocol: service.TCP, Port: 8000, NodePort: 80}},
			}}})
			s := subscribe(t, h, Filter{})
			w := &watcher{Hub: h, table: newTable()}
			now := time.Unix(1000, 0)
			for _, step := range c.steps {
				now = now.Add(step.after)
				e := conntrack.TableEvent{Kind: step.kind, Connection: conntrack.Connection{Replied: step.replied}, Key: web, At: now}
				e.Protocol, e.State, e.From, e.To, e.Answerer = 6, step.state, client, server, pod
				if step.elsewhere {
					e.Answerer = server
				}
				e.Accounted, e.Carried = true, traffic.Counts{BytesIn: step.bytes}
				switch {
				case step.lost:
					w.table.forget(now)
				case step.wait:
				case step.packet:
					w.packet(&e)
				default:
					w.handle(&e)
				}
				w.unserved(now)
			}
			if got := take(s); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("records %q, want %q", got, c.want)
			}
			w.unserved(now.Add(time.Hour))
			if n := len(w.table.pending); n > 0 {
				t.Errorf("%d packets still wait", n)
			}
		})
	}
}

// TestTable_ManyConnections: with more connections than are remembered, only the beginnings of old ones are forgotten.
func TestTable_ManyConnections(t *testing.T) {
	h := testHub(nil)
	s := subscribe(t, h, Filter{})
	w := &watcher{Hub: h, table: newTable()}
	began := func(n int, at time.Time) *conntrack.TableEvent {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(n >> 16), byte(n >> 8)}), uint16(n&255))
		e := &conntrack.TableEvent{Connection: conntrack.Connection{Replied: true}, Key: web, At: at}
		e.Protocol, e.From, e.To, e.Answerer = 6, from, server, pod
		return e
	}
	now := time.Unix(1000, 0)
	for n := range begunMax {
		w.handle(began(n, now))
	}
	w.packet(began(begunMax+2, now.Add(patience)))
	now = now.Add(patience + 1)
	for n := range 2 {
		w.handle(began(begunMax+n, now))
	}
	if len(w.table.begun) != 2 || len(w.table.pending) != 1 || s.Lost() != 0 {
		t.Errorf("%d connections and %d packets are remembered", len(w.table.begun), len(w.table.pending))
	}
	ended := began(7, now)
	ended.Kind = conntrack.Ended
	w.handle(ended)
	if f := <-s.C; f.Client != ended.From || !f.Start.IsZero() {
		t.Errorf("record %+v", f)
	}
	for n := range begunMax + 1 {
		w.handle(began(begunMax+n, now))
	}
	if len(w.table.begun) > begunMax || s.Lost() == 0 {
		t.Errorf("%d connections are remembered, and nothing was lost", len(w.table.begun))
	}
}

// TestWhy compares the reasons with what the rules do.
func TestWhy(t *testing.T) {
	addr := netip.MustParseAddr
	spec := &service.Spec{
		Key: web, ClusterIPs: service.PerFamily[netip.Addr]{addr("10.0.0.1")}, ExternalLocal: true,
		Ports:            []service.Port{{Name: "a", Protocol: service.TCP, Port: 80, NodePort: 30080}},
		LoadBalancerVIPs: service.PerFamily[[]netip.Addr]{{addr("192.0.2.1")}},
		SourceRanges:     service.PerFamily[[]netip.Prefix]{{netip.MustParsePrefix("10.9.0.0/16")}},
	}
	remote := &service.Slice{
		Name: "s", Service: web, Family: service.IPv4, Ports: []service.SlicePort{{Name: "a", Protocol: service.TCP, Port: 8080}},
	}
	remote.Endpoints = append(remote.Endpoints, service.SliceEndpoint{Addr: pod.Addr(), Ready: true, Serving: true})
	at := func(a string, port uint16) service.Frontend {
		return service.Frontend{Addr: addr(a), Port: port, Protocol: service.TCP}
	}
	for _, c := range []struct {
		slices  []*service.Slice
		f       service.Frontend
		client  string
		verdict traffic.Verdict
		reason  string
	}{
		{nil, at("10.0.0.1", 80), "10.9.0.1", traffic.Refused, "no-endpoints"},
		{nil, at("198.51.100.1", 30080), "10.9.0.1", traffic.Refused, "no-endpoints"},
		{[]*service.Slice{remote}, at("10.0.0.1", 80), "10.9.0.1", traffic.Dropped, "other-rules"},
		{[]*service.Slice{remote}, at("192.0.2.1", 80), "10.9.0.1", traffic.Dropped, "no-endpoints"},
		{[]*service.Slice{remote}, at("192.0.2.1", 80), "10.8.0.1", traffic.Dropped, "source-range"},
		{[]*service.Slice{remote}, at("10.0.0.1", 81), "10.9.0.1", traffic.Dropped, "other-rules"},
	} {
		h := testHub(map[service.Key]service.Snapshot{web: {Spec: spec, Slices: c.slices}})
		if verdict, reason := why(h.view(web), c.f, addr(c.client)); verdict != c.verdict || reason != c.reason {
			t.Errorf("%v from %s with %d slices: %s %s, want %s %s", c.f, c.client, len(c.slices), verdict, reason, c.verdict, c.reason)
		}
	}
}

// TestHub_Subscriptions: each subscription gets the records that match its filter; a full one loses records, and the
// number of subscriptions is limited.
func TestHub_Subscriptions(t *testing.T) {
	h := testHub(nil)
	all := subscribe(t, h, Filter{})
	refused := subscribe(t, h, Filter{Verdicts: []traffic.Verdict{traffic.Refused}})
	logged := subscribe(t, h, Filter{Logged: true})
	other := subscribe(t, h, Filter{Namespace: "other"})
	near := subscribe(t, h, Filter{Client: netip.MustParsePrefix("10.9.0.0/24")})
	put := func(v traffic.Verdict, from string) {
		h.Put(&traffic.Flow{Verdict: v, Namespace: web.Namespace, Name: web.Name, Client: netip.MustParseAddrPort(from)})
	}
	put(traffic.Closed, "10.9.0.1:1")
	h.Programmed(t.Context(), service.IPv4, service.View{Key: web, FlowLog: true})
	put(traffic.Refused, "10.9.1.1:1")
	h.Programmed(t.Context(), service.IPv4, service.View{Key: web})
	put(traffic.Dropped, "10.9.1.1:1")
	for i, want := range []int{3, 1, 1, 0, 1} {
		if s := []*Subscription{all, refused, logged, other, near}[i]; len(take(s)) != want || s.Lost() != 0 {
			t.Errorf("subscription %d: want %d records", i, want)
		}
	}
	for range queueMax + 5 {
		put(traffic.Closed, "10.8.0.1:1")
	}
	if len(all.C) != queueMax || all.Lost() != 5 || all.Lost() != 0 || near.Lost() != 0 || h.Lost() != 5 {
		t.Errorf("%d records wait, %d were lost", len(all.C), h.Lost())
	}
	for range observersMax - 5 {
		subscribe(t, h, Filter{})
	}
	if _, err := h.Subscribe(Filter{}); err == nil {
		t.Error("one too many")
	}
	near.Close()
	subscribe(t, h, Filter{})
	h.fail(errors.New("broken"))
	all.Close()
	if _, err := h.Subscribe(Filter{}); err == nil || err.Error() != "broken" {
		t.Errorf("subscribed: %v", err)
	}
}

// TestHub_FlowLogHasPlace: observers that are connected first do not prevent the flow log, and the flow log does not
// prevent observers.
func TestHub_FlowLogHasPlace(t *testing.T) {
	for _, first := range []int{0, observersMax} {
		h := testHub(nil)
		for range first {
			subscribe(t, h, Filter{})
		}
		log := h.Record(Filter{})
		for range observersMax - first {
			subscribe(t, h, Filter{})
		}
		if _, err := h.Subscribe(Filter{}); err == nil {
			t.Errorf("%d first: one observer too many", first)
		}
		if h.Put(&traffic.Flow{Verdict: traffic.Closed, Client: client}); len(take(log)) != 1 {
			t.Errorf("%d first: no record for the flow log", first)
		}
	}
}

// TestLog: the lines of each Service are limited, the log reports omitted lines, and a file that was moved is created
// again.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.log")
	synctest.Test(t, func(t *testing.T) {
		h := testHub(nil)
		s, err := h.Subscribe(Filter{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		l := &Log{Path: path, Failed: func(err error) { t.Error(err) }}
		done := make(chan struct{})
		go func() { l.Write(ctx, s); close(done) }()
		put := func(name string, count int) {
			for range count {
				h.Put(&traffic.Flow{Verdict: traffic.Closed, Namespace: "shop", Name: name, Client: client})
			}
		}
		put("loud", 2*linesMax)
		put("web", 5)
		time.Sleep(1500 * time.Millisecond)
		if err := os.Rename(path, path+".1"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		put("web", 3)
		stop() // what waits is written
		<-done
	})
	counts := map[string]int{}
	for _, file := range []string{path + ".1", path} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var f struct {
				traffic.Flow
				Omitted int
			}
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				t.Errorf("%q: %v", line, err)
			}
			counts[filepath.Ext(file)+f.Name] += 1 + f.Omitted
		}
	}
	if want := (map[string]int{".1loud": serviceMax, ".1web": 5, ".1": 1 + 2*linesMax - serviceMax, ".logweb": 3}); fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("lines %v, want %v", counts, want)
	}
}

// fullDisk takes a number of bytes, and fails until there is more room.
type fullDisk struct {
	strings.Builder
	room atomic.Int64
}

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), int(d.room.Load()))
	d.room.Add(-int64(n))
	_, _ = d.Builder.Write(b[:n])
	if n < len(b) {
		return n, errors.New("no space left")
	}
	return n, nil
}

// TestLog_RecoversAfterFailure: after a failure, the log is tried again, also on standard output. It reports missing
// lines, and contains whole lines only.
func TestLog_RecoversAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHub(nil)
		s, err := h.Subscribe(Filter{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		disk, failures := &fullDisk{}, 0
		disk.room.Store(50)
		l := &Log{Path: "-", Standard: disk, Failed: func(error) { failures++ }}
		done := make(chan struct{})
		go func() { l.Write(ctx, s); close(done) }()
		put := func(count int) {
			for range count {
				h.Put(&traffic.Flow{Verdict: traffic.Closed, Namespace: "shop", Name: "web", Client: client})
			}
			time.Sleep(time.Second)
		}
		put(7)
		put(5)
		disk.room.Store(1 << 20)
		time.Sleep(again)
		put(3)
		stop()
		<-done
		lines := strings.Split(strings.TrimSuffix(disk.String(), "\n"), "\n")
		if len(lines) != 5 || len(lines[0]) != 50 || !strings.Contains(lines[1], `"omitted":12}`) || !strings.HasSuffix(lines[4], "}") || failures != 1 {
			t.Errorf("%d failures, lines %q", failures, lines)
		}
	})
}

// TestLog_PipeWithoutReader: a pipe without a reader does not block the log.
func TestLog_PipeWithoutReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s := subscribe(t, testHub(nil), Filter{})
	var failures int
	ctx, stop := context.WithCancel(t.Context())
	stop()
	(&Log{Path: path, Failed: func(error) { failures++ }}).Write(ctx, s)
	if failures != 1 {
		t.Errorf("%d failures", failures)
	}
}
