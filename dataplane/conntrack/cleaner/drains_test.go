// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

const shopIP, shopNode = "10.96.0.20:80", "10.0.0.1:30080"

// webView is a TCP Service whose connections drain for a time.
func webView(after time.Duration, endpoints ...string) service.View {
	port := service.PortView{Name: "http", Port: 80, NodePort: 30080, ClusterIP: at(shopIP).Addr()}
	for _, e := range ats(endpoints...) {
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: e})
	}
	slices.SortFunc(port.Cluster, service.Endpoint.Compare)
	view := service.View{Key: named("web"), Drain: service.Drain{Limited: true, After: after}}
	view.Ports[service.IPv4] = []service.PortView{port}
	return view
}

// connect puts a TCP connection into the table.
func (f *fake) connect(name, destination, answerer string) {
	f.add(name, destination, answerer)
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.held[name]
	c.Protocol, c.Replied = unix.IPPROTO_TCP, true
	f.held[name] = c
}

func (f *fake) listed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listings
}

func (h *house) web(after time.Duration, endpoints ...string) {
	h.Programmed(context.Background(), service.IPv4, webView(after, endpoints...))
	synctest.Wait()
}

// cuts returns what was cut since the last call, as text.
func (h *house) cuts() (all []string) {
	synctest.Wait()
	for _, e := range h.taken() {
		for _, c := range e.Cut {
			all = append(all, fmt.Sprintf("%v: %d to %v, %d early", c.Service, c.Connections, c.Endpoints, c.Crowded))
		}
	}
	return all
}

func (h *house) expectCuts(when string, want ...string) {
	h.Helper()
	if got := h.cuts(); !slices.Equal(got, want) {
		h.Errorf("%s: cut %q, want %q", when, got, want)
	}
}

func TestDrains_Deadline(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		f.host = []netip.Addr{at(shopNode).Addr()}
		h.web(time.Minute, "10.1.0.1:8080", "10.1.0.2:8080")
		h.settle()
		f.connect("1", shopIP, "10.1.0.1:8080")
		f.connect("1 node port", shopNode, "10.1.0.1:8080")
		f.connect("2", shopIP, "10.1.0.2:8080")
		f.connect("another port", "10.96.0.20:81", "10.1.0.1:8080")
		f.connect("elsewhere", "203.0.113.9:30080", "10.1.0.1:8080")
		f.connect("untranslated", shopIP, shopIP)
		f.add("UDP", shopIP, "10.1.0.1:8080")
		h.web(time.Minute, "10.1.0.2:8080")
		time.Sleep(30 * time.Second)
		h.web(time.Minute, "10.1.0.1:8080", "10.1.0.2:8080")
		time.Sleep(time.Hour)
		h.expectCuts("the endpoint returned")
		h.web(time.Minute, "10.1.0.2:8080")
		listings := f.listed()
		time.Sleep(time.Minute - time.Millisecond)
		if h.expectCuts("before the deadline"); f.listed() != listings {
			t.Errorf("listed %d times before the deadline", f.listed()-listings)
		}
		time.Sleep(time.Second)
		h.expectCuts("after the deadline", "ns1/web: 2 to [10.1.0.1:8080], 0 early")
		h.expectFlows("after the deadline", "2", "UDP", "another port", "elsewhere", "untranslated")
		if asked := f.listed() - listings; asked != 2 {
			t.Errorf("asked %d times, want one question for each frontend", asked)
		}
		listings = f.listed()
		time.Sleep(24 * time.Hour)
		if synctest.Wait(); f.listed() != listings {
			t.Errorf("listed %d times afterwards", f.listed()-listings)
		}
	})
}

// TestDrains_DeadlineChanges: a changed deadline counts from the time when the endpoint left.
func TestDrains_DeadlineChanges(t *testing.T) {
	inHouse(t, func(h *house) {
		h.web(time.Hour, "10.1.0.1:8080", "10.1.0.2:8080")
		h.kernels[service.IPv4].connect("1", shopIP, "10.1.0.1:8080")
		h.web(time.Hour, "10.1.0.2:8080")
		time.Sleep(20 * time.Second)
		h.web(30*time.Second, "10.1.0.2:8080")
		time.Sleep(9 * time.Second)
		h.expectCuts("after 29 s")
		time.Sleep(2 * time.Second)
		h.expectCuts("after 31 s", "ns1/web: 1 to [10.1.0.1:8080], 0 early")
	})
}

// TestDrains_UnknownEndpoints: the deadline of an endpoint that left before the first view begins with this view. That
// of an endpoint in an overtaken view begins with the next view.
func TestDrains_UnknownEndpoints(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		f.connect("1", shopIP, "10.1.0.1:8080")
		h.web(time.Minute, "10.1.0.2:8080")
		time.Sleep(time.Minute)
		h.expectCuts("before the deadline")
		time.Sleep(time.Second)
		h.expectCuts("after the deadline", "ns1/web: 1 to [10.1.0.1:8080], 0 early")
		f.connect("3", shopIP, "10.1.0.3:8080")
		for _, endpoint := range []string{"10.1.0.3:8080", "10.1.0.4:8080"} {
			h.Programmed(context.Background(), service.IPv4, webView(time.Minute, endpoint))
		}
		time.Sleep(2 * time.Minute)
		h.expectCuts("overtaken", "ns1/web: 1 to [10.1.0.3:8080], 0 early")
		f.connect("5", shopIP, "10.1.0.5:8080")
		h.Submitted(context.Background(), service.IPv4, webView(time.Minute, "10.1.0.5:8080"))
		h.Submitted(context.Background(), service.IPv4, webView(time.Minute, "10.1.0.4:8080"))
		h.web(time.Minute, "10.1.0.4:8080")
		listings := f.listed()
		h.Submitted(context.Background(), service.IPv4, webView(time.Minute, "10.1.0.4:8080"))
		h.web(time.Minute, "10.1.0.4:8080")
		time.Sleep(time.Second)
		if synctest.Wait(); f.listed() != listings {
			t.Errorf("listed %d times before the deadline", f.listed()-listings)
		}
		time.Sleep(2 * time.Minute)
		h.expectCuts("submitted and overtaken", "ns1/web: 1 to [10.1.0.5:8080], 0 early")
	})
}

// TestDrains_SubmittedEndpoint: the time of an endpoint that only submitted views contained begins with the first view
// that lacks it.
func TestDrains_SubmittedEndpoint(t *testing.T) {
	inHouse(t, func(h *house) {
		submit := func(endpoints ...string) {
			h.Submitted(context.Background(), service.IPv4, webView(time.Minute, endpoints...))
			time.Sleep(30 * time.Second)
		}
		h.web(time.Minute, "10.1.0.1:8080")
		h.kernels[service.IPv4].connect("2", shopIP, "10.1.0.2:8080")
		submit("10.1.0.1:8080", "10.1.0.2:8080")
		submit("10.1.0.2:8080", "10.1.0.3:8080")
		submit("10.1.0.1:8080")
		h.web(time.Minute, "10.1.0.1:8080")
		time.Sleep(29 * time.Second)
		h.expectCuts("before the deadline")
		time.Sleep(2 * time.Second)
		h.expectCuts("after the deadline", "ns1/web: 1 to [10.1.0.2:8080], 0 early")
	})
}

// TestDrains_ForgetState: without a deadline or a Service, the cleaner keeps no state of drains and cuts nothing.
func TestDrains_ForgetState(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		f.connect("1", shopIP, "10.1.0.1:8080")
		unlimited := webView(0, "10.1.0.2:8080")
		unlimited.Drain = service.Drain{}
		for _, then := range []service.View{{Key: named("web")}, unlimited} {
			h.web(time.Minute, "10.1.0.1:8080", "10.1.0.2:8080")
			h.web(time.Minute, "10.1.0.2:8080")
			h.Programmed(context.Background(), service.IPv4, then)
			h.settle()
			k := h.families[service.IPv4]
			h := k.table.services[named("web")]
			if d := k.table; len(d.todo.looks)+len(d.busy)+len(d.leaving) > 0 || h != nil && (h.drain != nil || len(h.coming.ports) > 0) {
				t.Errorf("remembered: %+v", d)
			}
		}
		h.expectFlows("in the end", "1")
	})
}

// TestDrains_SpareReturningEndpoint: a drain cuts no connection to an endpoint that a submitted view contains again.
// The kernel may send new connections there before the cleaner receives the view.
func TestDrains_SpareReturningEndpoint(t *testing.T) {
	inHouse(t, func(h *house) {
		h.web(time.Minute, "10.1.0.1:8080", "10.1.0.2:8080")
		h.kernels[service.IPv4].connect("1", shopIP, "10.1.0.1:8080")
		h.web(time.Minute, "10.1.0.2:8080")
		time.Sleep(59 * time.Second)
		h.Submitted(context.Background(), service.IPv4, webView(time.Minute, "10.1.0.1:8080"))
		time.Sleep(time.Minute)
		h.expectCuts("submitted")
		h.expectFlows("submitted", "1")
	})
}

// TestDrains_Bound: when too many endpoints drain, the cleaner cuts the connections to the oldest ones before their
// deadline.
func TestDrains_Bound(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		var all []string
		for i := range leaversMax + 2 {
			all = append(all, fmt.Sprintf("10.2.%d.%d:80", i/256, i%256))
			f.connect(fmt.Sprint(i), shopIP, all[i])
		}
		h.web(time.Hour, all...)
		h.web(time.Hour, all[1:]...)
		time.Sleep(time.Second)
		h.web(time.Hour, all[2:]...)
		time.Sleep(time.Second)
		h.web(time.Hour)
		time.Sleep(time.Second)
		h.expectCuts("too many", "ns1/web: 2 to [10.2.0.0:80 10.2.0.1:80], 2 early")
		time.Sleep(time.Hour)
		if got := h.cuts(); len(got) != 1 || len(f.names()) != 0 {
			t.Errorf("after the deadline: %d cuts, %d connections left", len(got), len(f.names()))
		}
	})
}

// TestDrains_RetryAfterFailedSweep: after a failed sweep, the drain is tried again, and its count includes the
// connections that the failed sweep cut.
func TestDrains_RetryAfterFailedSweep(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		for _, name := range []string{"a", "b", "c"} {
			f.connect(name, shopIP, "10.1.0.1:8080")
		}
		h.web(0, "10.1.0.1:8080")
		h.settle()
		f.mu.Lock()
		f.removing = func(n int, name string) error {
			if n == 1 && name == "b" {
				return errors.New("busy")
			}
			return nil
		}
		f.mu.Unlock()
		h.web(0, "10.1.0.2:8080")
		time.Sleep(10 * time.Second)
		h.expectCuts("a flow could not be deleted", "ns1/web: 3 to [10.1.0.1:8080], 0 early")
	})
}

// TestEnded_ClosedConnectionsStay: a closed connection, which the kernel keeps for two minutes, does not count as cut.
func TestEnded_ClosedConnectionsStay(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		h.web(0, "10.1.0.1:8080")
		h.settle()
		for _, state := range []string{"ESTABLISHED", "FIN_WAIT", "TIME_WAIT", "CLOSE"} {
			f.connect(state, shopIP, "10.1.0.1:8080")
			c := f.held[state]
			c.State = state
			f.held[state] = c
		}
		h.web(0, "10.1.0.2:8080")
		h.settle()
		h.expectFlows("after the deadline", "CLOSE", "TIME_WAIT")
	})
}

// TestDrains_NodePortCutsNoOtherService: a drain of a node port cuts no connection of a Service that has the same port
// number at an address of the node. The kernel prefers that Service, even if its view has not arrived.
func TestDrains_NodePortCutsNoOtherService(t *testing.T) {
	for name, known := range map[string]bool{"its view is known": true, "only the API knows it": false} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(h *house) {
				other := service.View{Key: named("victim")}
				port := service.PortView{Port: 30080, ExternalIPs: []netip.Addr{at(shopNode).Addr()}}
				port.Cluster = []service.Endpoint{{AddrPort: at("10.1.0.9:8080")}}
				other.Ports[service.IPv4] = []service.PortView{port}
				h.families[service.IPv4].config.Owner = func(_ service.Family, f service.Frontend) (service.Key, bool) {
					if f.Addr.IsValid() {
						return other.Key, !known
					}
					return named("web"), !known
				}
				if known {
					h.Programmed(context.Background(), service.IPv4, other)
					h.settle()
				}
				f := h.kernels[service.IPv4]
				f.host = []netip.Addr{at(shopNode).Addr()}
				f.connect("of the other", shopNode, "10.1.0.9:8080")
				h.web(0, "10.1.0.1:8080")
				h.settle()
				f.connect("own", shopIP, "10.1.0.1:8080")
				h.web(0, "10.1.0.2:8080")
				h.settle()
				if got := f.names(); !slices.Equal(got, []string{"of the other"}) {
					t.Errorf("left are %v", got)
				}
			})
		})
	}
}
