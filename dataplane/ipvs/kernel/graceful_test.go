// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// farewell is a Service on the fake kernel in virtual time. Its endpoints are letters: "a b" are 10.0.0.97:8080 and
// 10.0.0.98:8080.
type farewell struct {
	*stand
	*fakeKernel
	port  service.PortView
	drain service.Drain
	cut   []Cut
	// unread are the errors of questions.
	unread []error
}

const mode = time.Minute

func say(t *testing.T, change func(*service.PortView), test func(t *testing.T, f *farewell)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &farewell{}
		f.stand, f.fakeKernel = newFakeStand(t, service.IPv4, f.config())
		f.port = f.clusterIP(1, 0)
		if change != nil {
			change(&f.port)
		}
		test(t, f)
	})
}

func (f *farewell) config() Config {
	return Config{
		DrainDeadline: mode, Cut: func(c Cut) { f.cut = append(f.cut, c) },
		Unread: func(_ service.Key, _ service.Frontend, err error) { f.unread = append(f.unread, err) },
	}
}

func set(letters string) (all []service.Endpoint) {
	for _, l := range strings.Fields(letters) {
		all = append(all, service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, l[0]}), 8080)})
	}
	return all
}

func letter(addr netip.AddrPort) string { return string(addr.Addr().AsSlice()[3:]) }

var departing = service.Key{Namespace: "ns", Name: "a"}

// objects are those of the Service with some endpoints.
func (f *farewell) objects(ports ...service.PortView) owned {
	view := f.View(ports...)
	view.Key, view.Drain = departing, f.drain
	renderer := render.NewRenderer(service.IPv4, render.Options{MasqueradeBit: 14, DrainDeadline: mode})
	return owned{view.Key, renderer.Service(context.Background(), view, f.Facts())}
}

// serve brings the kernel to what the Service wants with some endpoints.
func (f *farewell) serve(cluster string) {
	f.Helper()
	f.port.Cluster = set(cluster)
	f.want(f.scaffold(), f.objects(f.port))
}

// connect gives the kernel a connection to some endpoints, at each virtual server, and none to others.
func (f *farewell) connect(letters string) {
	for _, s := range f.servers {
		for addr, d := range s.reals {
			if d.ActiveConns = 0; strings.Contains(letters, letter(addr)) {
				d.ActiveConns = 1
			}
			s.reals[addr] = d
		}
	}
}

// has returns the real servers of a virtual server, such as "a=1 b=0", and how many leave.
func (f *farewell) has(addr netip.Addr) string {
	s := f.servers[service.Frontend{Addr: addr, Port: f.port.Port, Protocol: f.port.Protocol}]
	if s == nil {
		return "nothing"
	}
	var all []string
	for addr, d := range s.reals {
		all = append(all, fmt.Sprintf("%s=%d", letter(addr), d.Weight))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// reals are those of the ClusterIP.
func (f *farewell) reals() map[netip.AddrPort]wire.Destination {
	return f.servers[service.Frontend{Addr: f.port.ClusterIP, Port: f.port.Port, Protocol: f.port.Protocol}].reals
}

// expectAt compares what the ClusterIP has.
func (f *farewell) expectAt(when, want string, leaving int) {
	f.Helper()
	if got := f.has(f.port.ClusterIP); got != want || f.w.Leaving()[departing] != leaving {
		f.Errorf("%s: %q and %d leave, want %q and %d", when, got, f.w.Leaving()[departing], want, leaving)
	}
}

// pass lets time pass. Alarms ring meanwhile, each after a turn of the test, as the race detector wants it.
func (f *farewell) pass(d time.Duration) {
	if err := f.w.take(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.w.give()
	time.Sleep(d)
	synctest.Wait()
}

// TestGraceful_WhoKeepsConnections: after each sequence of endpoints, all with a connection, the kernel has the
// expected endpoints and weights.
func TestGraceful_WhoKeepsConnections(t *testing.T) {
	tcp, udp, sctp := service.TCP, service.UDP, service.SCTP
	for _, tt := range []struct {
		name     string
		protocol service.Protocol
		// cluster are the endpoints that get new connections, serving also those that still serve.
		cluster, serving []string
		want             string
		leaving          int
	}{
		{"nothing has left", tcp, []string{"a", "a b"}, nil, "a=1 b=1", 0},
		{"one has left", tcp, []string{"a b", "a"}, nil, "a=1 b=0", 1},
		{"all have left", tcp, []string{"a b c", ""}, nil, "a=0 b=0 c=0", 3},
		{"replaced", tcp, []string{"a b", "b c", "c d"}, nil, "a=0 b=0 c=1 d=1", 2},
		{"back again", tcp, []string{"a b", "a", "a b"}, nil, "a=1 b=1", 0},
		{"back and left again", tcp, []string{"a b", "a", "a b", "b"}, nil, "a=0 b=1", 1},
		{"UDP", udp, []string{"a b", "a"}, []string{"a b", "a"}, "a=1", 0},
		{"UDP while it serves", udp, []string{"a b", "a"}, []string{"a b", "a b"}, "a=1 b=0", 1},
		{"UDP until it does not serve any more", udp, []string{"a b", "a", "a"}, []string{"a b", "a b", "a"}, "a=1", 0},
		{"UDP that serves and was never served", udp, []string{"a", "a"}, []string{"a b", "a b c"}, "a=1", 0},
		{"SCTP", sctp, []string{"a b", "a"}, nil, "a=1", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			say(t, func(p *service.PortView) { p.Protocol = tt.protocol }, func(t *testing.T, f *farewell) {
				for i, cluster := range tt.cluster {
					if tt.serving != nil {
						f.port.Serving = set(tt.serving[i])
					}
					f.serve(cluster)
					f.connect("abcd")
				}
				f.expectAt("at the end", tt.want, tt.leaving)
				f.pass(mode - lookMin)
				f.expectAt("before the deadline", tt.want, tt.leaving)
				f.pass(2 * lookMin)
				if f.expect(f.scaffold(), f.objects(f.port)); strings.Contains(f.has(f.port.ClusterIP), "=0") || len(f.w.Leaving()) > 0 {
					t.Errorf("after the deadline: %q", f.has(f.port.ClusterIP))
				}
			})
		})
	}
}

// TestGraceful_FrontendsLeftSeparately: an endpoint that is no longer local leaves the frontends that send to local
// endpoints, and stays at the ClusterIP.
func TestGraceful_FrontendsLeftSeparately(t *testing.T) {
	say(t, func(p *service.PortView) {
		p.ExternalIPs, p.ExternalLocal = []netip.Addr{netip.MustParseAddr("192.0.2.7")}, true
	}, func(t *testing.T, f *farewell) {
		f.port.Local = set("a b")
		f.serve("a b")
		f.connect("ab")
		f.port.Local = set("a")
		f.serve("a b")
		f.expectAt("b is not local any more", "a=1 b=1", 1)
		if got := f.has(f.port.ExternalIPs[0]); got != "a=1 b=0" {
			t.Errorf("outside: %q", got)
		}
		f.port.Cluster = set("a")
		f.serve("a")
		f.expectAt("b has left", "a=1 b=0", 1) // one endpoint
		f.port.ExternalIPs = nil
		f.serve("a")
		f.expectAt("not accessible any more", "a=1 b=0", 1)
		f.want(f.scaffold())
		f.expectAt("the Service is gone", "nothing", 0)
	})
}

// TestGraceful_EndpointStaysUntilIdle: a leaving endpoint is removed when it has no connections. The writer asks for
// them first after a second, and then at most every ten seconds.
func TestGraceful_EndpointStaysUntilIdle(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		f.serve("a b c")
		if f.w.alarm != nil {
			t.Error("an alarm although nothing leaves")
		}
		f.connect("b")
		f.serve("a")
		f.expectAt("left", "a=1 b=0 c=0", 2)
		f.pass(lookMin)
		f.expectAt("c is idle", "a=1 b=0", 1)
		f.questions = 0
		f.pass(30 * time.Second)
		if f.questions != 4 { // after 3, 7, 15 and 25 s
			t.Errorf("%d questions", f.questions)
		}
		f.connect("")
		f.pass(lookMax)
		f.expectAt("b is idle", "a=1", 0)
		if len(f.cut) > 0 || f.w.alarm != nil {
			t.Errorf("cut %+v, alarm %v", f.cut, f.w.alarm)
		}
	})
}

// TestGraceful_Deadline: the deadline is that of the mode or of the Service, also if it changes while endpoints leave,
// and the cut is reported once for all frontends.
func TestGraceful_Deadline(t *testing.T) {
	for drain, want := range map[service.Drain]time.Duration{
		{}: mode, {Limited: true, After: time.Hour}: time.Hour, {Limited: true, After: 5 * time.Second}: 5 * time.Second,
	} {
		for _, late := range []bool{false, true} {
			say(t, func(p *service.PortView) { p.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.7")} }, func(t *testing.T, f *farewell) {
				if !late {
					f.drain = drain
				}
				f.serve("a b c")
				f.connect("abc")
				f.serve("a")
				f.pass(2 * time.Second)
				f.drain = drain
				f.serve("a")
				f.pass(want - 2*time.Second - time.Nanosecond)
				f.expectAt("before", "a=1 b=0 c=0", 2)
				f.pass(time.Nanosecond)
				f.expectAt("at the deadline", "a=1", 0)
				told := []Cut{{Service: departing, Endpoints: []netip.AddrPort{set("b")[0].AddrPort, set("c")[0].AddrPort}, Deadline: want}}
				if !reflect.DeepEqual(f.cut, told) {
					t.Errorf("told %+v, want %+v", f.cut, told)
				}
			})
		}
	}
}

// TestGraceful_ZeroDeadline: with a deadline of 0, connections end immediately, including those that were kept before.
func TestGraceful_ZeroDeadline(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		f.serve("a b c")
		f.connect("abc")
		f.serve("a b")
		f.drain.Limited = true
		f.serve("a b")
		f.expectAt("changed", "a=1 b=1", 0)
		f.serve("a")
		f.expectAt("left", "a=1", 0)
	})
}

// TestGraceful_LeavingChangesOnlyWeight: when an endpoint leaves or returns, only its weight changes.
func TestGraceful_LeavingChangesOnlyWeight(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		f.serve("a b")
		for _, step := range []struct{ cluster, want string }{
			{"a", "change real server"}, {"a b", "change real server"}, {"a", "change real server"}, {"b c", "change real server change real server add real server"},
		} {
			f.log = nil
			f.serve(step.cluster)
			var servers []string
			for _, line := range f.about(" real server ") {
				servers = append(servers, strings.Join(strings.Fields(line)[:3], " "))
			}
			slices.Sort(servers)
			want := strings.Split(strings.ReplaceAll(step.want, "server ", "server,"), ",")
			slices.Sort(want)
			if !slices.Equal(servers, want) {
				t.Errorf("%q: %q, want %q", step.cluster, servers, want)
			}
		}
	})
}

// TestGraceful_RestartFindsLeaving: after a restart, the writer finds endpoints that were leaving and those that left
// in between, and their deadline starts again.
func TestGraceful_RestartFindsLeaving(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		f.serve("a b c")
		f.connect("abc")
		f.serve("a b")
		f.pass(mode - time.Second)
		if err := f.w.Close(); err != nil {
			t.Fatal(err)
		}
		f.pass(mode)
		f.begin(f.config())
		f.expectAt("stopped", "a=1 b=1 c=0", 0)
		f.read()
		f.serve("a")
		f.expectAt("restarted", "a=1 b=0 c=0", 2)
		f.pass(mode - time.Second)
		f.expectAt("the deadline started again", "a=1 b=0 c=0", 2)
		f.connect("c")
		f.pass(time.Second / 2)
		f.serve("a b")
		f.expectAt("b is back", "a=1 b=1 c=0", 1)
		f.pass(time.Second)
		f.expectAt("the deadline", "a=1 b=1", 0)
	})
}

// TestGraceful_FailedWriteLosesNone: a failed write loses no leaving endpoint, and none that it should remove or bring
// back. The writer finds changes that landed without an answer.
func TestGraceful_FailedWriteLosesNone(t *testing.T) {
	for _, fault := range []error{wire.ErrUnanswered, &wire.Rejection{Errno: unix.ENOMEM}, &wire.NotSentError{Err: unix.ENOBUFS}} {
		for _, landed := range []string{"", "b", "d", "b d"} {
			t.Run(fmt.Sprint(fault, " ", landed), func(t *testing.T) {
				say(t, nil, func(t *testing.T, f *farewell) {
					f.serve("a b c d e")
					f.connect("abcde")
					f.serve("a b c")
					f.pass(10 * time.Second)
					f.fault = func(line string) error {
						for _, weight := range []struct {
							letter string
							value  uint32
						}{{"b", 0}, {"d", 1}} {
							if addr := set(weight.letter)[0].AddrPort; strings.Contains(line, addr.String()) {
								if d := f.reals()[addr]; strings.Contains(landed, weight.letter) {
									d.Weight = weight.value
									f.reals()[addr] = d
								}
								return fault
							}
						}
						return nil
					}
					f.port.Cluster = set("a c d")
					if receipt := f.write(f.changes(f.scaffold(), f.objects(f.port))); receipt.Outcome == dataplane.Landed {
						t.Fatal(receipt)
					}
					f.pass(5 * time.Second)
					f.fault = nil
					f.read()
					f.serve("a c d")
					f.expectAt("written at last", "a=1 b=0 c=1 d=1 e=0", 2)
					f.serve("a c")
					f.expectAt("d has left again", "a=1 b=0 c=1 d=0 e=0", 3)
					f.pass(mode - 15*time.Second)
					f.expectAt("the first deadline", "a=1 b=0 c=1 d=0", 2)
					f.pass(mode)
					f.expectAt("the last deadline", "a=1 c=1", 0)
				})
			})
		}
	}
}

// TestGraceful_FailedDeletionRetried: a failed deletion is retried after a pause, on a new connection if an answer was
// lost.
func TestGraceful_FailedDeletionRetried(t *testing.T) {
	for _, fault := range []error{wire.ErrUnanswered, unix.ENOMEM} {
		say(t, nil, func(t *testing.T, f *farewell) {
			f.serve("a b")
			f.connect("b")
			f.serve("a")
			f.log, f.fault = nil, fails("delete real server", fault)
			f.pass(mode + 20*time.Second)
			f.expectAt("no deletion", "a=1 b=0", 1)
			if n := len(f.about("delete")); n < 2 || n > 4 || len(f.cut) > 0 {
				t.Errorf("%d attempts in 20 s; told %+v", n, f.cut)
			}
			f.fault = nil
			f.pass(lookMax)
			f.expectAt("deleted", "a=1", 0)
			if lost := errors.Is(fault, wire.ErrUnanswered); len(f.cut) != 1 || (f.opened > 1) != lost {
				t.Errorf("told %+v, %d connections", f.cut, f.opened)
			}
		})
	}
}

// TestGraceful_KernelDoesNotAnswer: while the kernel does not answer, a leaving endpoint stays, and the failure is
// reported once.
func TestGraceful_KernelDoesNotAnswer(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		f.serve("a b")
		f.serve("a")
		f.unanswered = wire.ErrUnanswered
		f.pass(2 * mode)
		f.expectAt("no answer", "a=1 b=0", 1)
		if len(f.unread) != 1 || !errors.Is(f.unread[0], wire.ErrUnanswered) || f.opened < 2 {
			t.Errorf("told %v, %d connections", f.unread, f.opened)
		}
		f.unanswered = nil
		f.pass(lookMax)
		f.expectAt("an answer", "a=1", 0)
		f.w.open = func() (*kernelSockets, error) { return nil, unix.EMFILE }
		f.serve("")
		if err := f.w.disconnect(); err != nil {
			t.Fatal(err)
		}
		f.pass(time.Minute)
		if len(f.unread) != 2 || !errors.Is(f.unread[1], unix.EMFILE) {
			t.Errorf("told %v", f.unread)
		}
		f.w.open = f.open
		f.pass(lookMax)
		f.expectAt("a connection", "", 0)
	})
}

// TestGraceful_OthersInterfere: if another program deletes a leaving endpoint or gives it a weight, the endpoint is no
// longer listed as leaving, and the next write corrects it.
func TestGraceful_OthersInterfere(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		f.serve("a b c d")
		f.connect("abcd")
		f.serve("a")
		server := wire.Service{Frontend: service.Frontend{Addr: f.port.ClusterIP, Port: 80}, Scheduler: "rr"}
		about := func(v wire.Verb, letter string, weight uint32) wire.Request {
			return wire.Request{Verb: v, Service: server, Real: wire.Real{Addr: set(letter)[0].AddrPort, Weight: weight}}
		}
		f.interfere(about(wire.DelReal, "b", 0), about(wire.SetReal, "c", 5))
		f.read()
		if n := f.w.Leaving()[departing]; n != 1 {
			t.Errorf("%d leave, want d", n)
		}
		f.serve("a")
		f.connect("abcd")
		f.expectAt("put right", "a=1 c=0 d=0", 2)
		f.interfere(about(wire.DelReal, "c", 0), about(wire.SetReal, "d", 5))
		f.pass(lookMin)
		f.expectAt("seen by the alarm", "a=1 d=5", 0)
		f.read()
		f.serve("a b c")
		f.interfere(wire.Request{Verb: wire.DelService, Service: server})
		f.read()
		f.serve("a")
		f.expectAt("a server that was deleted", "a=1", 0)
	})
}

// TestGraceful_OldestMakeRoom: a Service has at most 1,000 leaving endpoints, and the oldest ones are removed first.
func TestGraceful_OldestMakeRoom(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		many := func(from, to int) (all []service.Endpoint) {
			for i := from; i < to; i++ {
				all = append(all, service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)})
			}
			return all
		}
		serve := func(all []service.Endpoint) {
			f.port.Cluster = all
			f.want(f.scaffold(), f.objects(f.port))
			for addr, d := range f.reals() {
				d.ActiveConns = 1
				f.reals()[addr] = d
			}
		}
		serve(many(0, leavingMax+10))
		serve(many(5, leavingMax+10))
		f.pass(time.Second)
		if n := f.w.Leaving()[departing]; n != 5 || len(f.cut) > 0 {
			t.Errorf("%d leave, told %v", n, f.cut)
		}
		serve(nil)
		f.pass(0)
		if n := f.w.Leaving()[departing]; n != leavingMax || len(f.reals()) != leavingMax {
			t.Errorf("%d leave", n)
		}
		if len(f.cut) != 1 || len(f.cut[0].Endpoints) != 10 || f.cut[0].Bound != leavingMax || f.cut[0].Endpoints[4] != many(4, 5)[0].AddrPort {
			t.Errorf("told %+v", f.cut)
		}
	})
}

// TestGraceful_LookEndsSoon: a look asks about a limited number of virtual servers, so that a write does not wait long.
func TestGraceful_LookEndsSoon(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		const services = 3*looksMax + 1
		serve := func(endpoints int) {
			all := []owned{f.scaffold()}
			for i := range services {
				all = append(all, f.serviceOf(fmt.Sprint(i), f.clusterIP(i, endpoints)))
			}
			f.want(all...)
		}
		serve(2)
		for _, s := range f.servers {
			for addr, d := range s.reals {
				d.InactiveConns = 1
				s.reals[addr] = d
			}
		}
		serve(1)
		if len(f.w.Leaving()) != services {
			t.Errorf("%d Services", len(f.w.Leaving()))
		}
		// turn does something in a turn, and returns the number of questions.
		turn := func(do func()) int {
			if err := f.w.take(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer f.w.give()
			do()
			return f.questions
		}
		look := func(ctx context.Context, after time.Duration) func() {
			return func() { f.w.leaving.look(ctx, f.w.kernel, time.Now().Add(after)) }
		}
		f.questions = 0
		if n := turn(look(t.Context(), lookMin)); n != looksMax {
			t.Errorf("%d questions in one turn", n)
		}
		f.pass(lookMin + time.Nanosecond)
		if n := turn(func() {}); n != services {
			t.Errorf("%d questions, want one for each virtual server", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n := turn(look(ctx, mode)); n != services || len(f.unread) > 0 {
			t.Errorf("asked although the time is over: told %v", f.unread)
		}
	})
}

// TestGraceful_TurnCostsWhatItChanges: the cost of a write or a look does not grow with the number of Services with
// leaving endpoints, except for finding a place in the queue.
func TestGraceful_TurnCostsWhatItChanges(t *testing.T) {
	// cost counts steps of a write that lets one more endpoint leave, of one that lets none, and of a look.
	cost := func(services int) (leaves, elsewhere, look int) {
		say(t, nil, func(t *testing.T, f *farewell) {
			last := map[int]int{}
			serve := func() {
				all := []owned{f.scaffold()}
				for i := range services + 1 {
					all = append(all, f.serviceOf(fmt.Sprint(i), f.clusterIP(i, last[i])))
				}
				if receipt := f.write(f.changes(all...)); receipt.Outcome != dataplane.Landed {
					t.Fatal(receipt)
				}
				for _, s := range f.servers {
					for addr, d := range s.reals {
						d.InactiveConns = 1
						s.reals[addr] = d
					}
				}
			}
			for i := range services {
				last[i] = 3
			}
			serve()
			for i := range services {
				last[i] = 2
			}
			serve()
			f.pass(lookMin / 2)
			steps := func(do func()) int {
				before := f.w.leaving.queue.steps
				do()
				if err := f.w.take(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer f.w.give()
				return f.w.leaving.queue.steps - before
			}
			last[0] = 1
			leaves = steps(serve)
			last[services] = 1
			elsewhere = steps(serve)
			f.pass(lookMin * 3 / 4) // the looks at all others
			if n := len(f.w.Leaving()); n != services {
				t.Errorf("%d Services", n)
			}
			look = steps(func() { f.pass(lookMin / 2) }) // the one at what left last
		})
		return leaves, elsewhere, look
	}
	leaves, elsewhere, look := cost(20)
	manyLeaves, manyElsewhere, manyLook := cost(500)
	t.Logf("among 20: %d, %d and %d steps; among 500: %d, %d and %d", leaves, elsewhere, look, manyLeaves, manyElsewhere, manyLook)
	const deeper = 5 // levels of the queue
	if leaves == 0 || manyLeaves > leaves+4*deeper {
		t.Errorf("an endpoint that leaves costs %d steps among 20 Services, %d among 500", leaves, manyLeaves)
	}
	if elsewhere != 0 || manyElsewhere != 0 {
		t.Errorf("a write without endpoints that leave costs %d and %d steps", elsewhere, manyElsewhere)
	}
	if look == 0 || manyLook > look+6*deeper {
		t.Errorf("a look costs %d steps among 20 Services, %d among 500", look, manyLook)
	}
}

// TestForesee: Foresee returns what a write would leave in the kernel, including leaving endpoints, and changes
// nothing.
func TestForesee(t *testing.T) {
	say(t, nil, func(t *testing.T, f *farewell) {
		f.serve("a b c d")
		f.connect("abc")
		f.serve("a b c")
		f.begin(f.config()) // another process
		f.read()
		f.connect("abc")
		f.log = nil
		f.port.Cluster, f.drain = set("a b"), service.Drain{Limited: true, After: time.Hour}
		for _, c := range f.changes(f.scaffold(), f.objects(f.port)) {
			got, err := f.w.Foresee(t.Context(), &c)
			if err != nil {
				t.Fatal(err)
			}
			if c.ID.Container != render.ContainerServer {
				if got != c.After {
					t.Errorf("%v becomes %+v", c.ID, got)
				}
				continue
			}
			if want := "rr 0x0 0\n10.0.0.97:8080 1\n10.0.0.98:8080 1\n10.0.0.99:8080 0"; got.Body != want {
				t.Errorf("got %q, want %q", got.Body, want)
			}
		}
		if len(f.log) > 0 || len(f.w.Leaving()) > 0 {
			t.Errorf("%q, %v", f.log, f.w.Leaving())
		}
	})
}
