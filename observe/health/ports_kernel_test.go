// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// portsWorld is a world with Ports in it.
type portsWorld struct {
	*world
	ports *Ports
	stop  func()
	// healthy and addresses are the answers to the Ports; a family without addresses has all.
	healthy atomic.Bool

	mu        sync.Mutex
	addresses service.PerFamily[[]netip.Addr]
	failures  []string
}

func newPortsWorld(t *testing.T, addresses ...string) *portsWorld {
	t.Helper()
	w := &portsWorld{world: newWorld(t)}
	w.healthy.Store(true)
	w.listenAt(addresses...)
	w.ports = w.newPorts(PortsConfig{
		Healthy: w.healthy.Load, NodePorts: w.nodePorts, Log: zap.NewNop(),
		Failed: func(key service.Key, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failures = append(w.failures, fmt.Sprint(key, ": ", err))
		},
	})
	w.stop = w.run(w.ports.Run)
	return w
}

// listenAt changes the addresses that node ports answer on.
func (w *portsWorld) listenAt(addresses ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addresses = service.PerFamily[[]netip.Addr]{}
	for _, text := range addresses {
		addr := netip.MustParseAddr(text)
		family := service.FamilyOf(addr)
		w.addresses[family] = append(w.addresses[family], addr)
	}
}

func (w *portsWorld) nodePorts(family service.Family) service.NodePortAddresses {
	w.mu.Lock()
	defer w.mu.Unlock()
	return service.NodePortAddresses{All: w.addresses[family] == nil, Addresses: w.addresses[family]}
}

// failed returns the failures reported since the last call.
func (w *portsWorld) failed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	failures := w.failures
	w.failures = nil
	return failures
}

// program reports that the kernel serves a Service in both families. With port 0 it has no
// health-check node port.
func (w *portsWorld) program(name string, port uint16, ready4, ready6 int) {
	for _, family := range service.Families {
		w.ports.Programmed(context.Background(), family, viewOf(name, port, ready4, ready6))
	}
}

func viewOf(name string, port uint16, ready4, ready6 int) service.View {
	return service.View{
		Key:                 service.Key{Namespace: "ns1", Name: name},
		Ports:               service.PerFamily[[]service.PortView]{{{Name: "http"}}, {{Name: "http"}}},
		HealthCheckNodePort: port, ReadyLocal: service.PerFamily[int]{ready4, ready6},
	}
}

// hosts are the addresses at which the tests ask for the port of each family.
var hosts = service.PerFamily[string]{own4, "[" + own6 + "]"}

// TestKernelPorts_Answers: a port answers any path and method with the same status, headers and body, byte for byte.
func TestKernelPorts_Answers(t *testing.T) {
	w := newPortsWorld(t)
	tests := []struct {
		ready   int
		healthy bool
	}{{1, true}, {0, true}, {12, true}, {12, false}, {0, false}, {2, true}}
	for _, tt := range tests {
		w.healthy.Store(tt.healthy)
		w.program("svc1", 32000, tt.ready, tt.ready+1)
		for family, host := range hosts {
			ready, status := tt.ready+family, http.StatusServiceUnavailable // IPv6 has one more
			if ready > 0 && tt.healthy {
				status = http.StatusOK
			}
			want := fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"ns1\",\n\t\t\"name\": \"svc1\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}",
				ready, tt.healthy)
			var a answered
			w.eventually("the body is "+want, func() (is bool) {
				var err error
				a, err = w.get("http://" + host + ":32000/")
				return err == nil && a.body == want
			})
			h := a.header
			if a.status != status || h.Get("Content-Type") != "application/json" || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("X-Load-Balancing-Endpoint-Weight") != strconv.Itoa(ready) {
				t.Errorf("%+v, want status %d and weight %d", a, status, ready)
			}
		}
	}
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS", "BREW"} {
		for _, path := range []string{"/", "/healthz", "/a//b/../c", "/?verbose"} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+own4+":32000"+path, nil)
			must(t, err)
			answer, err := w.client.Do(r)
			must(t, err)
			must(t, answer.Body.Close())
			if answer.StatusCode != 200 || answer.Header.Get("X-Load-Balancing-Endpoint-Weight") != "2" {
				t.Errorf("%s %s: %d %v", method, path, answer.StatusCode, answer.Header)
			}
		}
	}
	if text := w.raw(own4+":32000", "OPTIONS * HTTP/1.0\r\n\r\n"); !strings.Contains(text, "localEndpoints\": 2") {
		t.Errorf("OPTIONS *: %s", text)
	}
	if failures := w.failed(); len(failures) > 0 {
		t.Errorf("reported %v", failures)
	}
}

// raw sends a text to an address and returns the whole answer.
func (w *portsWorld) raw(address, text string) string {
	w.Helper()
	c, err := w.node.DialContext(w.Context(), "tcp", address)
	must(w, err)
	must(w, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	must(w, err)
	answer, err := io.ReadAll(c)
	must(w, errors.Join(err, c.Close()))
	return string(answer)
}

// TestKernelPorts_SeparatePerFamily: each family has its own ports, and a socket of one family does not answer for the
// other.
func TestKernelPorts_SeparatePerFamily(t *testing.T) {
	for _, family := range service.Families {
		w := newPortsWorld(t)
		w.ports.Programmed(context.Background(), family, viewOf("svc1", 32000, 1, 1))
		w.answers("http://"+hosts[family]+":32000", 200)
		if other := hosts[1-family] + ":32000"; !w.closed(other) {
			t.Errorf("%s answers for %s", family, other)
		}
		// A family without ports of the Service has no port.
		view := viewOf("svc1", 32000, 1, 1)
		view.Ports[family] = nil
		w.ports.Programmed(context.Background(), family, view)
		w.eventually("the port closes", func() bool { return w.closed(hosts[family] + ":32000") })
		w.stop()
	}
}

// TestKernelPorts_FollowService: the port of a Service opens, remains open during other changes, moves and closes with
// the Service.
func TestKernelPorts_FollowService(t *testing.T) {
	w := newPortsWorld(t)
	w.program("other", 32001, 1, 1)
	w.program("svc1", 32000, 1, 1)
	w.answers("http://"+own4+":32000", 200)
	w.answers("http://"+own4+":32001", 200)

	// A connection that stays open shows that the listener and its server stay, and that they
	// answer with the current state.
	kept := &http.Client{Transport: &http.Transport{DialContext: w.node.DialContext, MaxConnsPerHost: 1}, Timeout: patience}
	defer kept.CloseIdleConnections()
	ask := func() (int, error) {
		r, err := kept.Get("http://" + own4 + ":32000")
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, r.Body)
		return r.StatusCode, errors.Join(err, r.Body.Close())
	}
	status, err := ask()
	if must(t, err); status != 200 {
		t.Fatalf("got %d", status)
	}
	sockets := w.listening()
	w.program("svc1", 32000, 0, 0)
	w.eventually("503 on the same connection", func() bool {
		status, err := ask()
		must(t, err)
		return status == 503
	})
	if now := w.listening(); now != sockets {
		t.Errorf("sockets changed from\n%s to\n%s", sockets, now)
	}

	w.program("svc1", 32002, 1, 1)
	w.answers("http://"+hosts[1]+":32002", 200)
	w.eventually("the former port is closed", func() bool {
		return w.closed(own4+":32000") && w.closed(hosts[1]+":32000")
	})
	if _, err := ask(); err == nil {
		t.Error("a connection to the former port goes on")
	}
	w.program("svc1", 0, 0, 0) // say, externalTrafficPolicy is Cluster now
	w.eventually("no port is left", func() bool { return w.closed(own4+":32002") && w.closed(hosts[1]+":32002") })
	w.program("svc1", 32002, 1, 1)
	w.answers("http://"+own4+":32002", 200)
	w.answers("http://"+own4+":32001", 200)
	w.stop()
	for _, address := range []string{own4 + ":32001", own4 + ":32002", hosts[1] + ":32001", hosts[1] + ":32002"} {
		if !w.closed(address) {
			t.Errorf("%s is open after the end", address)
		}
	}
	if failures := w.failed(); len(failures) > 0 {
		t.Errorf("reported %v", failures)
	}
}

// listening returns the listening sockets of the host, with their inodes.
func (w *portsWorld) listening() string {
	w.Helper()
	var text strings.Builder
	must(w, w.node.Do(func() error {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(content)) {
				if f := strings.Fields(line); f[3] == "0A" { // TCP_LISTEN
					fmt.Fprintln(&text, f[1], f[9])
				}
			}
		}
		return nil
	}))
	return text.String()
}

// TestKernelPorts_ProgrammedBeforeStart: of the states before Run, the newest one counts.
func TestKernelPorts_ProgrammedBeforeStart(t *testing.T) {
	w := &portsWorld{world: newWorld(t)}
	w.ports = w.newPorts(quiet)
	w.program("svc1", 31999, 1, 1)
	w.program("svc1", 32000, 3, 3)
	w.program("svc2", 0, 0, 0)
	w.run(w.ports.Run)
	if a := w.answers("http://"+own4+":32000", 200); !strings.Contains(a.body, `"serviceProxyHealthy": true`) {
		t.Errorf("got %+v", a)
	}
	if !w.closed(own4 + ":31999") {
		t.Error("an overtaken port is open")
	}
}

// TestKernelPorts_PortTaken: a port that is in use is reported with a remedy, opens at no address of the family, and
// opens at all once it is free.
func TestKernelPorts_PortTaken(t *testing.T) {
	w := newPortsWorld(t, own4, second4)
	thief := w.take("tcp4", second4+":32000")
	w.program("svc1", 32000, 1, 1)
	w.eventually("a failure is reported", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.failures) > 0
	})
	first := w.failed()[0]
	for _, part := range []string{"ns1/svc1", second4 + ":32000", "address already in use", "occupies port 32000; stop it"} {
		if !strings.Contains(first, part) {
			t.Errorf("%q does not say %q", first, part)
		}
	}
	if !w.closed(own4 + ":32000") {
		t.Error("open at one address although the other is taken")
	}
	w.answers("http://"+hosts[1]+":32000", 200) // the other family does not mind
	must(t, thief.Close())
	for _, host := range []string{own4, second4} { // by itself
		w.answers("http://"+host+":32000", 200)
	}
}

// TestKernelPorts_TakenRetriedWhenProgrammed: when the Service is programmed, a port that was in use is tried before
// the next retry is due, and without another report. The test sets the time.
func TestKernelPorts_TakenRetriedWhenProgrammed(t *testing.T) {
	w := newPortsWorld(t)
	w.stop() // no other goroutine may touch what follows
	reported := 0
	config := quiet
	config.Failed = func(service.Key, error) { reported++ }
	p := w.newPorts(config)
	defer p.end()
	now := time.Now()
	program := func(local int) {
		for _, family := range service.Families {
			p.Programmed(context.Background(), family, viewOf("svc1", 32000, local, local))
		}
		p.take(now)
	}
	thief := w.take("tcp4", "0.0.0.0:32000")
	program(1)
	p.retry(now.Add(time.Hour), false)
	must(t, thief.Close())
	failures := reported
	if failures == 0 {
		t.Fatal("no failure is reported")
	}
	program(2)
	w.answers("http://"+own4+":32000", 200)
	if reported != failures {
		t.Errorf("%d failures are reported, then %d", failures, reported)
	}
}

// TestKernelPorts_PortMovesBetweenServices: a port moves from one Service to another in either order of their changes,
// and a conflict is only reported if it lasts. The test sets the time.
func TestKernelPorts_PortMovesBetweenServices(t *testing.T) {
	w := newPortsWorld(t)
	w.stop() // no other goroutine may touch what follows
	var reported []string
	config := quiet
	config.Failed = func(key service.Key, _ error) { reported = append(reported, key.Name) }
	p := w.newPorts(config)
	defer p.end()
	now := time.Now()
	program := func(name string, port uint16) {
		now = now.Add(100 * time.Millisecond)
		for _, family := range service.Families {
			p.Programmed(context.Background(), family, viewOf(name, port, 1, 1))
		}
		p.take(now)
	}
	owner := func(want string) {
		t.Helper()
		for _, host := range hosts {
			if a := w.answers("http://"+host+":32000", 200); !strings.Contains(a.body, strconv.Quote(want)) {
				t.Errorf("%s is not %s's: %s", host, want, a.body)
			}
		}
		if len(reported) > 0 {
			t.Errorf("reported %v", reported)
		}
	}
	program("old", 32000)
	owner("old")
	program("new", 32000)
	owner("old")
	program("old", 32001)
	owner("new")
	for _, name := range []string{"old", "new"} { // in one turn
		port := map[string]uint16{"old": 32000, "new": 0}[name]
		for _, family := range service.Families {
			p.Programmed(context.Background(), family, viewOf(name, port, 1, 1))
		}
	}
	p.take(now)
	owner("old")
	program("new", 32000)
	owner("old")
	p.retry(now.Add(retryMin), false)
	if fmt.Sprint(reported) != "[new new]" {
		t.Errorf("reported %v, want the second of two that keep one port, in each family", reported)
	}
}

// TestKernelPorts_GivenAddresses: ports open at the listed addresses only, and a changed list does not reopen the
// sockets of addresses that remain.
func TestKernelPorts_GivenAddresses(t *testing.T) {
	w := newPortsWorld(t, own4, own6)
	w.program("svc1", 32000, 1, 1)
	w.answers("http://"+own4+":32000", 200)
	w.answers("http://"+hosts[1]+":32000", 200)
	for _, address := range []string{second4 + ":32000", "127.0.0.1:32000", "[" + second6 + "]:32000", "[::1]:32000"} {
		if !w.closed(address) {
			t.Errorf("open at %s", address)
		}
	}
	before := w.listening()
	w.listenAt(own4, second4, second6)
	w.program("svc1", 32000, 1, 1)
	w.answers("http://"+second4+":32000", 200)
	w.answers("http://["+second6+"]:32000", 200)
	w.eventually("the former address is closed", func() bool { return w.closed(hosts[1] + ":32000") })
	after := w.listening()
	if first := strings.SplitAfter(before, "\n")[0]; !strings.Contains(after, first) {
		t.Errorf("the socket at %s was\n%s and is none of\n%s", own4, first, after)
	}
	w.mu.Lock()
	w.addresses[service.IPv4] = []netip.Addr{} // ranges that hold no address of this host
	w.mu.Unlock()
	w.program("svc1", 32000, 1, 1)
	w.eventually("IPv4 is closed everywhere", func() bool { return w.closed(own4+":32000") && w.closed(second4+":32000") })
	if reported := w.failed(); len(reported) > 0 {
		t.Errorf("reported %v", reported)
	}
}

// TestKernelPorts_AddressComesLater: a port remains open at one address while another address is missing, and opens
// there when it appears.
func TestKernelPorts_AddressComesLater(t *testing.T) {
	w := newPortsWorld(t, own4)
	w.program("svc1", 32000, 1, 1)
	w.answers("http://"+own4+":32000", 200)
	w.listenAt(own4, "192.0.2.99")
	w.program("svc1", 32000, 1, 1)
	w.eventually("a failure is reported", func() bool { return len(w.failed()) > 0 })
	w.answers("http://"+own4+":32000", 200)
	must(t, w.node.AddAddress("lo", netip.MustParsePrefix("192.0.2.99/32")))
	w.answers("http://192.0.2.99:32000", 200)
}

// TestKernelPorts_LostSocketReopened: a socket that ends by itself is reopened.
func TestKernelPorts_LostSocketReopened(t *testing.T) {
	w := newPortsWorld(t)
	w.program("svc1", 32000, 1, 1)
	w.answers("http://"+own4+":32000", 200)
	before := w.listening()
	w.breakListener(32000)
	w.eventually("another socket listens", func() bool { return w.listening() != before && !w.closed(own4+":32000") })
	w.answers("http://"+own4+":32000", 200)
	if reported := w.failed(); len(reported) > 0 {
		t.Errorf("reported %v", reported)
	}
}

// breakListener makes this process's IPv4 socket on a port useless.
func (w *portsWorld) breakListener(port int) {
	w.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	must(w, err)
	for _, d := range descriptors {
		fd, err := strconv.Atoi(d.Name())
		must(w, err)
		bound, err := unix.Getsockname(fd)
		if err != nil {
			continue // not a socket
		}
		if own, ok := bound.(*unix.SockaddrInet4); !ok || own.Port != port {
			continue
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 1 {
			must(w, unix.Shutdown(fd, unix.SHUT_RDWR))
			return
		}
	}
	w.Fatalf("no socket listens on port %d", port)
}

// TestKernelPorts_ManyServices: the ports of a thousand Services open and close, and nothing is left.
func TestKernelPorts_ManyServices(t *testing.T) {
	const services = 1000
	w := newPortsWorld(t)
	for i := range services {
		w.program(fmt.Sprint("svc", i), uint16(20000+i), 1, 1)
	}
	w.eventually("all are open", func() bool { return strings.Count(w.listening(), "\n") == 2*services })
	for i := range services {
		w.program(fmt.Sprint("svc", i), 0, 0, 0)
	}
	w.eventually("all are closed", func() bool { return w.listening() == "" })
	w.stop()
	if len(w.ports.checks)+len(w.ports.waiting) > 0 {
		t.Errorf("left: %d and %d", len(w.ports.checks), len(w.ports.waiting))
	}
	if reported := w.failed(); len(reported) > 0 {
		t.Errorf("reported %v", reported)
	}
}

// TestKernelPorts_IdleClientsLeaveRoom: load balancers get answers from the ports of all Services although many
// connections to one of them are idle.
func TestKernelPorts_IdleClientsLeaveRoom(t *testing.T) {
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: before.Max}))
	w := newPortsWorld(t)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	w.program("busy", 32000, 1, 1)
	w.program("other", 32001, 1, 1)
	w.answers("http://"+own4+":32000", 200)
	w.answers("http://"+own4+":32001", 200)
	const idle = 100
	var first net.Conn
	for i := range idle {
		c, err := w.node.DialContext(t.Context(), "tcp", own4+":32000")
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		if i == 0 {
			first = c
		}
	}
	began := time.Now()
	for _, port := range []string{"32000", "32001"} {
		c, err := w.node.DialContext(t.Context(), "tcp", own4+":"+port)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(5*time.Second)))
		_, err = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		must(t, err)
		answer, err := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.0 200") || time.Since(began) > time.Second {
			t.Errorf("port %s, with %d idle connections to port 32000: %q, %v after %v", port, idle, answer, err, time.Since(began))
		}
		must(t, c.Close())
	}
	must(t, first.SetDeadline(time.Now().Add(time.Second)))
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first idle connection is still open: %v", err)
	}
}
