package actors

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// set makes endpoints of letters: "a b" are 10.0.0.97:8080 and 10.0.0.98:8080.
func set(letters string) (all []service.Endpoint) {
	for _, l := range strings.Fields(letters) {
		all = append(all, service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, l[0]}), 8080)})
	}
	slices.SortFunc(all, service.Endpoint.Compare)
	return all
}

// letters is the way back.
func letters(all []service.Endpoint) string {
	var text []string
	for _, e := range all {
		text = append(text, string(e.AddrPort.Addr().AsSlice()[3:]))
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// tcp is a port with a ClusterIP alone.
func tcp(cluster string) service.PortView {
	return service.PortView{Name: "http", Port: 80, Cluster: set(cluster)}
}

// accessible is a port that answers outside by the Local policy.
func accessible(cluster, local string) service.PortView {
	return service.PortView{Name: "http", Port: 80, NodePort: 30080, ExternalLocal: true, Cluster: set(cluster), Local: set(local)}
}

// with changes a port.
func with(p service.PortView, change func(*service.PortView)) service.PortView {
	change(&p)
	return p
}

func viewOf(ports ...service.PortView) *service.View {
	v := &service.View{Key: web}
	v.Ports[service.IPv4] = ports
	return v
}

// drainingOf returns what drains behind each port, "a b|c".
func drainingOf(v *service.View) string {
	var all []string
	for _, p := range v.Ports[service.IPv4] {
		all = append(all, letters(p.Draining))
	}
	return strings.Join(all, "|")
}

func newDrain() *drain {
	output := &Output{Name: "drains", Family: service.IPv4, DrainDeadline: time.Minute}
	return &drain{key: web, output: output, asked: true}
}

// cutBy returns and forgets the endpoints that were cut by what has happened.
func cutBy(d *drain) (cut []service.Endpoint) {
	d.show()
	for _, e := range d.events {
		if e, ok := e.(DrainCut); ok {
			cut = append(cut, e.Endpoints...)
		}
	}
	d.events = nil
	return cut
}

// TestWhatLeavesDrains: views one after the other, and what drains with the last.
func TestWhatLeavesDrains(t *testing.T) {
	type views [][]service.PortView
	one := func(ports ...service.PortView) (all views) {
		for _, p := range ports {
			all = append(all, []service.PortView{p})
		}
		return all
	}
	protocol := func(p service.Protocol) views {
		change := func(v *service.PortView) { v.Protocol = p }
		return one(with(tcp("a b"), change), with(tcp("a"), change))
	}
	udp := func(cluster, serving string) service.PortView {
		return with(tcp(cluster), func(v *service.PortView) { v.Protocol, v.Serving = service.UDP, set(serving) })
	}
	rename := func(p *service.PortView) { p.Name = "web" }
	renumber := func(p *service.PortView) { p.Port = 81 }
	other := func(cluster string) service.PortView { return with(tcp(cluster), renumber) }
	tests := []struct {
		name  string
		views views
		want  string
	}{
		{"nothing has left", one(tcp("a"), tcp("a b")), ""},
		{"one has left", one(tcp("a b"), tcp("a")), "b"},
		{"all have left", one(tcp("c b a"), tcp("")), "a b c"},
		{"replaced", one(tcp("a b"), tcp("b c"), tcp("c d")), "a b"},
		{"back again", one(tcp("a b"), tcp("a"), tcp("a b")), ""},
		{"back and left again", one(tcp("a b"), tcp("a"), tcp("a b"), tcp("b")), "a"},
		{"UDP", protocol(service.UDP), ""},
		{"UDP while it serves", one(udp("a b", ""), udp("a", "a b")), "b"},
		{"UDP until it does not serve any more", one(udp("a b", ""), udp("a", "a b"), udp("a", "a")), ""},
		{"SCTP", protocol(service.SCTP), ""},
		{"the port is gone", views{{tcp("a b"), other("c d")}, {other("c")}}, "d"},
		{"the port goes later", views{{tcp("a b"), other("c")}, {tcp("a"), other("c")}, {other("c")}}, ""},
		{"the Service is gone", views{{tcp("a b")}, {tcp("a")}, {}}, ""},
		{"the Service was gone", views{{tcp("a b")}, {}, {tcp("a")}}, ""},
		{"ports change places", views{{tcp("a b"), other("c d")}, {tcp("a"), other("c d")}, {other("c"), tcp("a")}}, "d|b"},
		{"the port is renamed", one(tcp("a b"), tcp("a"), with(tcp(""), rename)), "a b"},
		{"the port has another number", one(tcp("a b"), tcp("a"), other("a")), ""},
		{"the node port stays", one(accessible("a b", "b"), accessible("a", ""), with(accessible("a", ""), renumber)), "b"},
		{"it is local now", one(tcp("a"), with(tcp("a"), func(p *service.PortView) { p.Cluster[0].Local = true })), ""},
		{"it has left the Local ones alone", one(accessible("a b", "a b"), accessible("a b", "a")), "b"},
		{"it has left the Cluster ones alone", one(accessible("a b", "b"), accessible("a", "b")), "b"},
		{"it has left both and is back in one", one(accessible("a b", "a b"), accessible("a", "a"), accessible("a b", "a")), "b"},
		{"it has left both and is back in both", one(accessible("a b", "a b"), accessible("a", "a"), accessible("a b", "a b")), ""},
		{"instead of local ones those of the cluster", one(accessible("a b", ""), accessible("a b", "b")), "a"},
		{"not accessible any more", one(accessible("a b", "a b"), accessible("a b", "a"), tcp("a b")), ""},
		{"inside alone by the Local policy", one(
			with(accessible("a b", "b"), func(p *service.PortView) { p.InternalLocal, p.ExternalLocal = true, false }),
			service.PortView{Port: 80, InternalLocal: true, Local: set("b")}), ""},
		{"an unused set does not count", one(with(tcp("a"), func(p *service.PortView) { p.InternalLocal, p.Local = true, set("b") }), tcp("a b")), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDrain()
			for _, ports := range tt.views {
				d.take(viewOf(ports...), noon)
			}
			if got := drainingOf(d.show()); got != tt.want {
				t.Errorf("%q drain, want %q", got, tt.want)
			}
		})
	}
}

// TestTheViewIsNotTouched: other domains and observers have it, too.
func TestTheViewIsNotTouched(t *testing.T) {
	d := newDrain()
	first, second := viewOf(tcp("a b")), viewOf(tcp("a"))
	d.take(first, noon)
	if d.show() != first {
		t.Error("nothing drains: must be the view itself")
	}
	d.take(second, noon)
	shown := d.show()
	if drainingOf(shown) != "b" || drainingOf(second) != "" || shown.Equal(second) {
		t.Errorf("shown %q, the view itself %q", drainingOf(shown), drainingOf(second))
	}
	if !slices.IsSortedFunc(shown.Ports[service.IPv4][0].Draining, service.Endpoint.Compare) {
		t.Error("not sorted")
	}
}

func TestWhatDrainsIsSortedAndUnique(t *testing.T) {
	d := newDrain()
	// Two service ports become one, and the same endpoints drain behind both.
	port := func(number, node uint16, cluster string) service.PortView {
		return service.PortView{Port: number, NodePort: node, Cluster: set(cluster)}
	}
	d.take(viewOf(port(80, 30080, "c z d"), port(81, 30081, "c d")), noon)
	d.take(viewOf(port(80, 30080, "z"), port(81, 30081, "")), noon)
	d.take(viewOf(port(80, 30081, "z")), noon)
	got := d.show().Ports[service.IPv4][0].Draining
	if letters(got) != "c d" || !slices.IsSortedFunc(got, service.Endpoint.Compare) {
		t.Errorf("%v", got)
	}
}

// TestTheOtherFamilyDoesNotDrainHere: its domain is another one.
func TestTheOtherFamilyDoesNotDrainHere(t *testing.T) {
	d := newDrain()
	d.output = &Output{Family: service.IPv6, DrainDeadline: time.Minute}
	d.take(viewOf(tcp("a b")), noon)
	d.take(viewOf(tcp("a")), noon)
	if !d.idle() || !d.due().IsZero() {
		t.Error("something drains")
	}
}

// looks returns when an endpoint that stays busy is asked about, in seconds, until its
// deadline or the end.
func looks(d *drain, end time.Duration) (at []string) {
	for {
		now := d.due()
		if now.IsZero() || now.Sub(noon) > end {
			return at
		}
		d.look(now, true)
		if cut := cutBy(d); len(cut) > 0 {
			at = append(at, fmt.Sprintf("%v: %s cut", now.Sub(noon), letters(cut)))
			continue
		}
		for {
			q, due := d.question(now, false)
			if !due {
				break
			}
			at = append(at, fmt.Sprintf("%v: %s", now.Sub(noon), letters([]service.Endpoint{q.Endpoint})))
			d.answer(q, Answer{Busy: true}, now)
		}
	}
}

func TestThePausesGrowUntilTheDeadline(t *testing.T) {
	d := newDrain()
	d.take(viewOf(tcp("a b c")), noon)
	d.take(viewOf(tcp("a b")), noon)
	d.take(viewOf(tcp("a")), noon.Add(20*time.Second))
	d.show()
	want := []string{"1s: c", "3s: c", "7s: c", "15s: c", "21s: b", "23s: b", "25s: c", "27s: b", "35s: c", "35s: b", "45s: c", "45s: b",
		"55s: c", "55s: b", "1m0s: c cut", "1m5s: b", "1m15s: b", "1m20s: b cut"}
	if got := looks(d, time.Hour); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if drainingOf(d.show()) != "" || !d.due().IsZero() {
		t.Error("something drains after the deadline")
	}
}

// TestServiceDrainDeadline: that of the Service holds, also if it changes meanwhile.
func TestServiceDrainDeadline(t *testing.T) {
	limited := func(after time.Duration, cluster string) *service.View {
		v := viewOf(tcp(cluster))
		v.Drain = service.Drain{Limited: true, After: after}
		return v
	}
	d := newDrain()
	d.take(limited(time.Hour, "a b"), noon)
	d.take(limited(time.Hour, "a"), noon)
	d.take(limited(5*time.Second, "a"), noon.Add(2*time.Second))
	d.show()
	if got := looks(d, time.Hour); !slices.Equal(got, []string{"1s: b", "3s: b", "5s: b cut"}) {
		t.Errorf("got %q", got)
	}
}

func TestAnIdleEndpointDrainsNoMore(t *testing.T) {
	d := newDrain()
	d.take(viewOf(tcp("a b c")), noon)
	d.take(viewOf(tcp("a")), noon)
	d.show()
	now := noon.Add(lookMin)
	if d.look(now, true); d.asking != asksBusy {
		t.Fatal("asks nothing")
	}
	if _, due := d.question(now, true); due {
		t.Fatal("a question goes before news")
	}
	d.look(now, true)
	for range 2 {
		q, due := d.question(now, false)
		if !due {
			t.Fatal("no question")
		}
		if letters(q.Port.Draining) != "b c" {
			t.Errorf("%q drain behind the port that is asked about", letters(q.Port.Draining))
		}
		d.answer(q, Answer{Busy: letters([]service.Endpoint{q.Endpoint}) == "c"}, now)
	}
	if _, due := d.question(now, false); due || !d.changed {
		t.Errorf("another question %v, changed %v", due, d.changed)
	}
	if got := drainingOf(d.show()); got != "c" || d.changed {
		t.Errorf("%q drain, want c; changed %v", got, d.changed)
	}
}

// TestNobodyIsAskedBeforeItIsInTheKernel: until then new connections may begin.
func TestNobodyIsAskedBeforeItIsInTheKernel(t *testing.T) {
	d := newDrain()
	d.take(viewOf(tcp("a b")), noon)
	d.take(viewOf(tcp("a")), noon)
	d.show()
	now := noon.Add(lookMin)
	d.look(now, false)
	if _, due := d.question(now, false); due || !d.due().Equal(now.Add(lookMin)) {
		t.Errorf("due at %v", d.due())
	}
}

func TestTheOldestMakeRoom(t *testing.T) {
	many := func(from, to int) service.PortView {
		p := tcp("")
		for i := from; i < to; i++ {
			p.Cluster = append(p.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)})
		}
		slices.SortFunc(p.Cluster, service.Endpoint.Compare)
		return p
	}
	d := newDrain()
	d.take(viewOf(many(0, drainingMax+10)), noon)
	d.take(viewOf(many(5, drainingMax+10)), noon)
	if cut := cutBy(d); cut != nil {
		t.Fatalf("%v cut", cut)
	}
	d.take(viewOf(tcp("")), noon.Add(time.Second))
	cut := cutBy(d)
	oldest := make([]service.Endpoint, 0, 5)
	oldest = append(oldest, many(0, 5).Cluster...)
	if len(cut) != 10 || !slices.Equal(cut[:5], oldest) {
		t.Errorf("%v cut, want %v and five more", cut, oldest)
	}
	if got := len(d.show().Ports[service.IPv4][0].Draining); got != drainingMax {
		t.Errorf("%d drain, want %d", got, drainingMax)
	}
	d.hold(0, set("a b"), noon.Add(2*time.Second))
	if cut := cutBy(d); len(cut) != 2 || len(d.leavers) != drainingMax {
		t.Errorf("%v cut for what the kernel held, %d drain", cut, len(d.leavers))
	}
}

// TestWhatTheKernelHeldDrains: but not where it is wanted.
func TestWhatTheKernelHeldDrains(t *testing.T) {
	d := newDrain()
	d.take(viewOf(with(tcp("a"), func(p *service.PortView) { p.Name, p.Port = "other", 81 }), accessible("a b", "a")), noon)
	d.hold(1, set("a b c c"), noon)
	if got := drainingOf(d.show()); got != "|b c" {
		t.Errorf("%q drain, want b (which is wanted inside alone) and c", got)
	}
	if !d.due().Equal(noon.Add(lookMin)) {
		t.Errorf("due at %v", d.due())
	}
	if e := d.show().Ports[service.IPv4][1].Draining[0]; !e.Local {
		t.Errorf("%v is not taken for local, as one that the kernel has for local traffic", e)
	}
	d.take(viewOf(accessible("a c", "c")), noon)
	if got := drainingOf(d.show()); got != "a b" {
		t.Errorf("%q drain, want b and what has left since; c is back", got)
	}
}

// TestADrainThatIsEmptyKeepsNothing: idle Services keep nothing.
func TestADrainThatIsEmptyKeepsNothing(t *testing.T) {
	d := newDrain()
	d.take(viewOf(tcp("a b")), noon)
	d.take(viewOf(tcp("a")), noon)
	d.look(noon.Add(time.Minute), true)
	if d.leavers != nil || !d.idle() {
		t.Errorf("%v", d.leavers)
	}
}

// TestHeldIsAskedOncePerPort: before the first fragment, and not after a port without
// an answer. While the kernel is too busy to answer, it is asked again, for a while.
func TestHeldIsAskedOncePerPort(t *testing.T) {
	d := newDrain()
	d.asked = false
	port := func(number uint16, protocol service.Protocol) service.PortView {
		return service.PortView{Port: number, Protocol: protocol, Cluster: set("a")}
	}
	now := noon
	ask := func(a Answer) (ports []uint16) {
		for q, ok := d.question(now, true); ok; q, ok = d.question(now, true) {
			ports = append(ports, q.Port.Port)
			now = now.Add(heldMax / 3)
			d.answer(q, a, now)
		}
		return ports
	}
	d.take(viewOf(), noon)
	if got := ask(Answer{}); got != nil {
		t.Errorf("asked about %v of a Service without ports", got)
	}
	ports := []service.PortView{port(80, service.TCP), port(81, service.SCTP), port(82, service.UDP)}
	d.take(viewOf(ports...), noon)
	if got := ask(Answer{Held: set("a b")}); !slices.Equal(got, []uint16{80, 82}) || drainingOf(d.show()) != "b||" {
		t.Errorf("asked about %v, %q drain", got, drainingOf(d.show()))
	}
	d.take(viewOf(ports...), noon)
	if got := ask(Answer{}); got != nil {
		t.Errorf("asked again about %v", got)
	}
	d.asked = false
	d.take(viewOf(ports...), noon)
	if got := ask(Answer{Err: errors.New("no such thing")}); !slices.Equal(got, []uint16{80}) {
		t.Errorf("asked about %v after an error", got)
	}
	d.asked, d.failed = false, time.Time{}
	d.take(viewOf(ports...), noon)
	if got := ask(Answer{Err: context.DeadlineExceeded}); !slices.Equal(got, []uint16{80, 80, 80, 80}) {
		t.Errorf("asked about %v without an answer in time", got)
	}
	if len(d.events) != 3 { // Drains, and one of each error
		t.Errorf("events %+v", d.events)
	}
	if e, ok := d.events[len(d.events)-1].(HeldUnknown); !ok || e.Key != web || e.Domain != "drains" {
		t.Errorf("events %+v", d.events)
	}
}
