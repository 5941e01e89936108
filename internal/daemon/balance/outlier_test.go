// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// world is a Service whose connections a test decides about.
type world struct {
	t   *testing.T
	o   *outliers
	now time.Time
	all []netip.AddrPort
}

func newWorld(t *testing.T, endpoints int) *world {
	w := &world{t: t, o: newOutliers(0), now: time.Unix(1_000_000, 0)}
	present := map[netip.AddrPort]bool{}
	for i := range endpoints {
		e := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80)
		w.all = append(w.all, e)
		present[e] = true
	}
	w.o.set(present)
	return w
}

func client(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}) }

// suspects returns the endpoints that are to get no connections.
func (w *world) suspects() (all []netip.AddrPort) {
	for e, s := range w.o.endpoints {
		if s.out() {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// connect makes one connection of a client to an endpoint.
func (w *world) connect(c, e int, answers bool) (changed bool) {
	w.now = w.now.Add(time.Millisecond)
	changed = w.o.began(w.all[e], w.now)
	if answers {
		return w.o.answered(client(c), w.all[e], w.now) || changed
	}
	return w.o.failed(client(c), w.all[e], w.now) || changed
}

func (w *world) expect(when string, suspects ...int) {
	w.t.Helper()
	var want []netip.AddrPort
	for _, i := range suspects {
		want = append(want, w.all[i])
	}
	if got := w.suspects(); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Fatalf("%s: suspects are %v, want %v", when, got, want)
	}
}

// warm lets clients have an answer of each endpoint.
func (w *world) warm(clients int) {
	for c := range clients {
		for e := range w.all {
			w.connect(c, e, true)
		}
	}
}

// TestOutliers_ThreeFailuresTwoClients: three failures in a row, of two clients that other endpoints answer, make an
// endpoint a suspect.
func TestOutliers_ThreeFailuresTwoClients(t *testing.T) {
	w := newWorld(t, 3)
	w.warm(2)
	w.connect(0, 1, false)
	w.connect(1, 1, false)
	w.expect("two failures")
	w.connect(0, 1, true)
	w.connect(0, 1, false)
	w.connect(1, 1, false)
	w.expect("not in a row")
	if !w.connect(0, 1, false) {
		t.Error("the third failure is no change")
	}
	w.expect("in a row", 1)
}

// TestOutliers_EvidenceComesLater: an endpoint also becomes a suspect if other endpoints answer the clients only after
// the failures.
func TestOutliers_EvidenceComesLater(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 4 {
		w.connect(i%2, 1, false)
	}
	w.expect("clients without answers")
	w.connect(0, 0, true)
	w.expect("one client is answered")
	w.connect(1, 2, true)
	w.expect("both are answered", 1)
}

// TestOutliers_Trials: the pause doubles as long as the endpoint fails, and ends with an answer.
func TestOutliers_Trials(t *testing.T) {
	w := newWorld(t, 2)
	w.warm(2)
	for i := range 3 {
		w.connect(i%2, 0, false)
	}
	for n, pause := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		w.expect("before the pause", 0)
		w.now = w.now.Add(pause*time.Second - 10*time.Millisecond)
		w.o.tick(w.now)
		w.expect("at the end of the pause", 0)
		w.now = w.now.Add(20 * time.Millisecond)
		w.o.tick(w.now)
		w.expect("after the pause")
		if n%2 == 0 {
			w.o.began(w.all[0], w.now)
			w.expect("during the trial", 0)
		}
		w.o.failed(client(0), w.all[0], w.now)
	}
	w.now = w.now.Add(301 * time.Second)
	w.o.tick(w.now)
	w.o.began(w.all[0], w.now)
	w.now = w.now.Add(trialMax + time.Millisecond)
	w.o.tick(w.now)
	w.expect("a trial without an outcome", 0)
	w.now = w.now.Add(301 * time.Second)
	w.o.tick(w.now)
	w.connect(1, 0, true)
	w.expect("after an answer")
	if !w.o.calm() {
		t.Error("not calm after an answer")
	}
}

// TestOutliers_APIChangeResets: an endpoint that is removed and added again is judged from the beginning.
func TestOutliers_APIChangeResets(t *testing.T) {
	w := newWorld(t, 2)
	w.warm(2)
	for i := range 3 {
		w.connect(i%2, 0, false)
	}
	w.expect("before", 0)
	w.o.set(map[netip.AddrPort]bool{w.all[1]: true})
	w.o.set(map[netip.AddrPort]bool{w.all[0]: true, w.all[1]: true})
	w.expect("after")
}

// TestOutliers_Acquittal: two clients that a new policy drops everywhere make an endpoint a suspect only until another
// endpoint fails them, too.
func TestOutliers_Acquittal(t *testing.T) {
	w := newWorld(t, 3)
	w.warm(3)
	for i := range 3 {
		w.connect(i%2, 1, false)
	}
	w.expect("after failures of one endpoint", 1)
	w.connect(2, 0, true)
	w.expect("after an answer to another client", 1)
	w.connect(0, 2, false)
	w.expect("one of the clients remains credible, and is alone")
	for range 100 {
		w.connect(0, w.now.Nanosecond()/1e6%3, false)
		w.connect(1, w.now.Nanosecond()/1e6%2, false)
		w.connect(2, w.now.Nanosecond()/1e6%3, true)
	}
	w.expect("in the long run")
}

// TestOutliers_ForgedClientsKeepSuspect: a suspect remains one when forged clients displace the clients that it failed.
func TestOutliers_ForgedClientsKeepSuspect(t *testing.T) {
	w, r := newWorld(t, 4), rand.New(rand.NewPCG(1, 2))
	w.warm(3)
	for i := range 3 {
		w.connect(i, 1, false)
	}
	for range 4 * clientsMax {
		c := 1000 + r.IntN(60000)
		w.connect(c, []int{0, 2, 3}[r.IntN(3)], true)
		w.connect(c, 2, false)
		w.connect(c, 3, false)
		w.connect(r.IntN(3), []int{0, 2, 3}[r.IntN(3)], true)
		w.connect(r.IntN(3), 2, true)
		w.connect(r.IntN(3), 3, true)
		w.expect("among forged clients", 1)
	}
}

// TestOutliers_HarmlessFailures: failures that no single endpoint causes, such as those of one client or at all
// endpoints, make no suspect.
func TestOutliers_HarmlessFailures(t *testing.T) {
	cases := map[string]func(w *world, r *rand.Rand){
		"one client that a policy drops, among others": func(w *world, r *rand.Rand) {
			w.connect(r.IntN(20), r.IntN(10), true)
			w.connect(99, r.IntN(10), false)
		},
		"clients that a policy drops everywhere": func(w *world, r *rand.Rand) {
			w.connect(100+r.IntN(5), r.IntN(10), false)
			w.connect(r.IntN(3), r.IntN(10), true)
		},
		"forged clients, without answers": func(w *world, r *rand.Rand) {
			w.connect(1000+r.IntN(60000), r.IntN(10), false)
			w.connect(r.IntN(20), r.IntN(10), true)
		},
		"forged clients that one endpoint is to be blamed for": func(w *world, r *rand.Rand) {
			w.connect(1000+r.IntN(60000), 3, false)
			w.connect(r.IntN(20), r.IntN(10), true)
		},
		"every second connection to an endpoint fails": func(w *world, r *rand.Rand) {
			w.connect(r.IntN(20), 3, false)
			w.connect(r.IntN(20), 3, true)
			w.connect(r.IntN(20), r.IntN(10), true)
		},
		"one in a thousand packets is lost": func(w *world, r *rand.Rand) {
			w.connect(r.IntN(20), r.IntN(10), r.IntN(1000) != 0)
		},
		"no endpoint answers": func(w *world, r *rand.Rand) {
			w.connect(r.IntN(20), r.IntN(10), false)
		},
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(t, 10), rand.New(rand.NewPCG(1, 2))
			end := w.now.Add(24 * time.Hour)
			for n := 0; w.now.Before(end); n++ {
				play(w, r)
				w.expect(fmt.Sprint("step ", n))
				w.now = w.now.Add(time.Second)
				w.o.tick(w.now)
			}
			if n := len(w.o.clients); n > clientsMax {
				t.Errorf("%d clients are remembered", n)
			}
		})
	}
}

// TestOutliers_SilentEndpointTrial: the trial connection to a silent endpoint is kept until the patience for answers
// ends, and then deleted. The endpoint remains one suspect.
func TestOutliers_SilentEndpointTrial(t *testing.T) {
	var told []Event
	deleted := 0
	w := newWorker(New(Config{
		Observe: func(service.Key, *service.Observed) {},
		Listen:  func(e Event) { told = append(told, e) },
		Delete: func(_ context.Context, _ service.Family, entries []conntrack.Description) error {
			deleted += len(entries)
			return nil
		},
	}))
	all, present := addresses(3)
	key, now := service.Key{Namespace: "demo", Name: "web"}, time.Unix(1_000_000, 0)
	s := newTracked(key)
	s.outliers = newOutliers(0)
	s.take(present, true, nil)
	w.services[key], w.ticked = s, now
	port := uint16(1000)
	happen := func(c, e int, kind conntrack.EventKind, state string) {
		if kind == conntrack.Began {
			port++
		}
		a := conntrack.TableEvent{Kind: kind, Key: key, At: now}
		a.State, a.Protocol, a.Answerer = state, service.TCP.Number(), all[e]
		a.From, a.To = netip.AddrPortFrom(client(c), port), netip.MustParseAddrPort("172.30.0.1:80")
		w.handle(&a)
	}
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(look)
			w.tick(t.Context(), now)
		}
	}
	avoid := func() { // as the kernel does after a change
		w.purge[purged{key, all[1]}] = true
		w.deleteUnanswered(t.Context())
	}
	for c := range 3 {
		happen(c, 0, conntrack.Began, "SYN_SENT")
		happen(c, 0, conntrack.Changed, "SYN_RECV")
	}
	for c := range 3 {
		happen(c, 1, conntrack.Began, "SYN_SENT")
	}
	pass(patience)
	if avoid(); deleted != 3 || len(told) != 1 {
		t.Fatalf("silent: %d deleted, told %v", deleted, told)
	}
	happen(0, 1, conntrack.Began, "SYN_SENT") // the kernel chose just before, and this is heard after the deletion
	if pass(patience + look); deleted != 4 {
		t.Fatal("a connection that was heard of late waits for a suspect")
	}
	pass(pauseMin)
	happen(0, 1, conntrack.Began, "SYN_SENT")
	if avoid(); deleted != 4 {
		t.Fatal("the trial was not awaited")
	}
	pass(patience)
	if got := s.outliers.endpoints[all[1]]; got.state != suspect || deleted != 5 {
		t.Errorf("after the trial: state %d, %d deleted", got.state, deleted)
	}
	pass(2 * pauseMin)
	happen(0, 1, conntrack.Began, "SYN_SENT")
	happen(0, 1, conntrack.Changed, "SYN_RECV")
	want := []Event{{key, all[1], true}, {key, all[1], false}}
	if now, ever := w.Tally(); !slices.Equal(told, want) || now != 0 || ever != 1 {
		t.Errorf("told %v; %d of %d are suspects", told, now, ever)
	}
}

// observed makes a worker with one Service of three endpoints, and a function that announces the beginnings of connections.
func observed() (w *worker, s *tracked, now time.Time, begin func(c, e int)) {
	w = newWorker(New(Config{Observe: func(service.Key, *service.Observed) {}, Listen: func(Event) {}}))
	all, present := addresses(3)
	key, now := service.Key{Namespace: "demo", Name: "web"}, time.Unix(1_000_000, 0)
	s = newTracked(key)
	w.need(s, true, false)
	s.outliers = newOutliers(0)
	s.take(present, true, nil)
	w.services[key], w.ticked = s, now
	port := uint16(1000)
	return w, s, now, func(c, e int) {
		port++
		a := conntrack.TableEvent{Kind: conntrack.Began, Key: key, At: now}
		a.Protocol, a.Answerer, a.State = service.TCP.Number(), all[e], "SYN_SENT"
		a.From, a.To = netip.AddrPortFrom(client(c), port), netip.MustParseAddrPort("172.30.0.1:80")
		w.handle(&a)
	}
}

// TestOutliers_LossesAndDelays: after lost announcements, and after a delay of the worker, missing answers are no
// failures.
func TestOutliers_LossesAndDelays(t *testing.T) {
	w, s, now, begin := observed()
	for c := range 3 {
		s.outliers.answered(client(c), endpointOf(0), now)
		begin(c, 1)
	}
	w.config.Feed = silentFeed(nil)
	w.attend(t.Context(), time.Now())
	w.hear(nil, true, nil)
	for range 20 {
		now = now.Add(look)
		w.silence(now)
	}
	if got := s.outliers.accused(); got != nil || len(s.open) > 0 || w.waiting != 0 {
		t.Errorf("after a loss: accused are %v, %d connections", got, w.waiting)
	}

	w, s, now, begin = observed()
	for c := range 3 {
		s.outliers.answered(client(c), endpointOf(0), now)
		begin(c, 1)
	}
	w.retry = time.Time{}
	w.tick(t.Context(), now.Add(5*time.Second))
	if got := s.outliers.accused(); got != nil {
		t.Errorf("after a delay: accused are %v", got)
	}
	for n := range 10 {
		w.tick(t.Context(), now.Add(5*time.Second+time.Duration(n+1)*look))
	}
	if got := s.outliers.accused(); len(got) != 1 {
		t.Errorf("some time after a delay: accused are %v", got)
	}
}

// TestWorker_RemovedServiceLeavesNothing: a removed Service leaves no connections, so there is room for those of
// others.
func TestWorker_RemovedServiceLeavesNothing(t *testing.T) {
	w, s, _, begin := observed()
	for c := range 10 {
		begin(c, c%3)
	}
	if w.waiting != 10 || w.observing != 1 {
		t.Fatalf("%d connections of %d Services", w.waiting, w.observing)
	}
	w.leave(s)
	if w.waiting != 0 || w.observing != 0 || len(w.services) != 0 {
		t.Errorf("%d connections of %d Services are left", w.waiting, w.observing)
	}
}

// TestWorker_ConnectionsBoundedPerService: connections of one Service beyond the limit are not followed.
func TestWorker_ConnectionsBoundedPerService(t *testing.T) {
	w, s, _, begin := observed()
	for c := range serviceWaitingMax + 100 {
		begin(c%60000, 0)
	}
	if len(s.open) != serviceWaitingMax || w.waiting != serviceWaitingMax {
		t.Errorf("%d connections are followed, want %d", len(s.open), serviceWaitingMax)
	}
}

func endpointOf(n byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n + 1}), 80)
}

// silence announces nothing.
type silence chan struct{}

func (s silence) Run(func(*conntrack.TableEvent), func()) error { <-s; return nil }

func (s silence) Close() error { close(s); return nil }

func silentFeed(read func(context.Context, service.Family, func(conntrack.Connection)) error) *conntrack.Feed {
	return &conntrack.Feed{Open: func() (conntrack.Announcer, error) { return silence(make(chan struct{})), nil }, Read: read}
}
