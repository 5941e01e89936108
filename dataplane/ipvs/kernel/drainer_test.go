package kernel

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// fakeQuestions answers a drainer, and counts.
type fakeQuestions struct {
	at                    map[service.Frontend][]wire.Destination
	asked, opened, listed int
	fail                  error
}

func (q *fakeQuestions) open() (destinationReader, error) {
	q.opened++
	return q, nil
}

// destination is an endpoint as the kernel has it.
func destination(e service.Endpoint, active, inactive uint32) wire.Destination {
	return wire.Destination{Real: wire.Real{Addr: e.AddrPort, Weight: 1}, ActiveConns: active, InactiveConns: inactive}
}

func (q *fakeQuestions) Close() error { return nil }

func (q *fakeQuestions) Services(context.Context) (all []wire.Service, err error) {
	q.listed++
	for f := range q.at {
		all = append(all, wire.Service{Frontend: f})
	}
	return all, q.fail
}

func (q *fakeQuestions) Destinations(_ context.Context, f service.Frontend) ([]wire.Destination, error) {
	q.asked++
	return q.at[f], q.fail
}

func newFakeDrainer(w rendertest.World) (*Drainer, *fakeQuestions) {
	q := &fakeQuestions{at: map[service.Frontend][]wire.Destination{}}
	d := newDrainer(render.NewRenderer(w.Family, render.Options{MasqueradeBit: 14}), q.open)
	d.Node(w.Facts())
	d.Writing()
	return d, q
}

func TestDrainerAsksAtTheFrontendsOfAPort(t *testing.T) {
	for _, family := range service.Families {
		w := rendertest.WorldOf(family)
		d, q := newFakeDrainer(w)
		p := w.OpenPort()
		p.ExternalLocal, p.Local = true, w.Endpoints(1)
		left, local := w.Endpoints(3)[2], w.Endpoints(1)[0]
		node := service.Frontend{Addr: w.Second, Port: p.NodePort}
		q.at[node] = []wire.Destination{destination(left, 1, 0), destination(local, 0, 1)}
		q.at[service.Frontend{Addr: p.ClusterIP, Port: 80}] = []wire.Destination{destination(left, 9, 0)}
		held, err := d.Held(t.Context(), w.View(p), &p)
		if want := []service.Endpoint{{AddrPort: left.AddrPort}}; err != nil || !slices.Equal(held, want) {
			t.Errorf("%s: held %v, %v, want %v", family, held, err, want)
		}
		// ClusterIP, external IP, load balancer and two addresses of the node.
		if q.asked != 5 || q.opened != 1 {
			t.Errorf("%s: %d questions on %d sockets, want 5 on 1", family, q.asked, q.opened)
		}
		for e, want := range map[service.Endpoint]bool{left: true, local: false, w.Endpoints(3)[1]: false} {
			if busy, err := d.Busy(t.Context(), w.View(p), &p, e); err != nil || busy != want {
				t.Errorf("%s: %v is busy: %t, %v, want %t", family, e, busy, err, want)
			}
		}
		q.at[node][0].ActiveConns = 0
		if busy, err := d.Busy(t.Context(), w.View(p), &p, left); err != nil || busy {
			t.Errorf("%s: busy by the connections of a frontend that wants the endpoint: %t, %v", family, busy, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Before the first write, one list says which frontends to ask about.
func TestDrainerAsksAtTheStartAboutWhatIsThere(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	q := &fakeQuestions{at: map[service.Frontend][]wire.Destination{}}
	d := newDrainer(render.NewRenderer(w.Family, render.Options{MasqueradeBit: 14}), q.open)
	d.Node(w.Facts())
	p, left := w.OpenPort(), service.Endpoint{AddrPort: netip.MustParseAddrPort("10.180.9.9:8080")}
	q.at[service.Frontend{Addr: p.ClusterIP, Port: 80}] = []wire.Destination{destination(left, 0, 0)}
	for range 2 {
		if held, err := d.Held(t.Context(), w.View(p), &p); err != nil || !slices.Equal(held, []service.Endpoint{left}) {
			t.Errorf("held %v, %v", held, err)
		}
	}
	if q.listed != 1 || q.asked != 2 {
		t.Errorf("%d lists and %d questions, want 1 and 2", q.listed, q.asked)
	}
	d.Writing()
	if _, err := d.Held(t.Context(), w.View(p), &p); err != nil || q.listed != 1 || q.asked != 2+5 {
		t.Errorf("%v, %d lists and %d questions, want 5 more of these", err, q.listed, q.asked)
	}
}

func TestDrainerWaitsForTheFacts(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	q := &fakeQuestions{}
	d := newDrainer(render.NewRenderer(w.Family, render.Options{}), q.open)
	d.Writing()
	p := w.Port()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Held(ctx, w.View(p), &p); !errors.Is(err, context.Canceled) || q.asked > 0 {
		t.Errorf("%v with %d questions", err, q.asked)
	}
	ended := make(chan error)
	go func() {
		_, err := d.Held(t.Context(), w.View(p), &p)
		ended <- err
	}()
	d.Node(w.Facts())
	if err := <-ended; err != nil || q.asked != 1 {
		t.Errorf("%v with %d questions", err, q.asked)
	}
}

func TestDrainerGivesUpASocketThatLostAnAnswer(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	d, q := newFakeDrainer(w)
	p := w.Port()
	q.fail = wire.ErrUnanswered
	for _, busy := range []error{wire.ErrUnanswered, dataplane.ErrBusy} {
		if _, err := d.Busy(t.Context(), w.View(p), &p, w.Endpoints(1)[0]); !errors.Is(err, busy) {
			t.Errorf("%v is not %v", err, busy)
		}
	}
	q.fail, q.at = nil, maps.Clone(q.at)
	if _, err := d.Busy(t.Context(), w.View(p), &p, w.Endpoints(1)[0]); err != nil || q.opened != 3 {
		t.Errorf("%v on %d sockets", err, q.opened)
	}
}
