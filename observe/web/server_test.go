// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// on is a configuration for an address of the loopback device.
func on(address string) ServerConfig {
	return ServerConfig{
		Name: "metrics address " + address, Address: address, Handler: site().Handler(), Failed: func(error) {},
	}
}

const anyPort = "127.0.0.1:0"

// started runs a server until the test ends. Stop stops it and returns what Run has returned.
func started(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() error { cancel(); err := <-done; done <- err; return err }
	t.Cleanup(func() { _ = stop() }) // a test that cares has looked
	return stop
}

// addressOf waits for a server to listen.
func addressOf(t *testing.T, s *Server) string {
	t.Helper()
	testenv.Eventually(t, "the server listens", func() bool { return s.listening.Load() != nil })
	return (*s.listening.Load()).String()
}

func get(t *testing.T, address, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// newServer makes a server that retries after 10 ms.
func newServer(c ServerConfig) *Server {
	s := NewServer(c)
	s.retry = 10 * time.Millisecond
	return s
}

// TestServer_ServesUntilStopped: the server answers until it is stopped, and then closes its socket.
func TestServer_ServesUntilStopped(t *testing.T) {
	c := on(anyPort)
	c.Failed = func(err error) { t.Errorf("failed: %v", err) }
	s := newServer(c)
	stop := started(t, s)
	address := addressOf(t, s)
	if got := get(t, address, "/proxyMode"); got != "nftables" {
		t.Errorf("got %q", got)
	}
	if err := stop(); err != nil {
		t.Errorf("stopped: %v", err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the socket is still there")
	}
}

// TestServer_StopLetsRequestsFinish: when the server stops, a request in progress gets its answer, an idle or slow
// client is disconnected, and the port is free afterwards.
func TestServer_StopLetsRequestsFinish(t *testing.T) {
	for _, probes := range []bool{false, true} {
		began, finish := make(chan struct{}), make(chan struct{})
		c := on(anyPort)
		c.ForProbes = probes
		c.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(began)
			<-finish
			_, _ = io.WriteString(w, "late")
		})
		s := newServer(c)
		s.farewell = 3 * time.Second
		stop := started(t, s)
		address := addressOf(t, s)
		send := func(text string) net.Conn {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		slow := send("GET /healthz HTTP/1.1\r\n") // and not a word more
		waiting := send("GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n")
		<-began
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		select {
		case <-stopped:
			t.Error("stopped before the answer was given")
		case <-time.After(50 * time.Millisecond):
		}
		close(finish)
		answer, err := http.ReadResponse(bufio.NewReader(waiting), nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answer.Body); string(text) != "late" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		_ = slow.SetReadDeadline(time.Now().Add(testenv.Patience))
		if _, err := slow.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the slow client is still connected: %v", err)
		}
		again, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
	}
}

// taken returns an address that another listener holds.
func taken(t *testing.T) net.Listener {
	t.Helper()
	other, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return other
}

// TestServer_TakenAddressRetried: the server reports an address that is in use with its owner, and retries until it is
// free.
func TestServer_TakenAddressRetried(t *testing.T) {
	other := taken(t)
	failures := make(chan error, 1000)
	c := on(other.Addr().String())
	c.Failed = func(err error) { failures <- err }
	s := newServer(c)
	started(t, s)
	for range 2 {
		err := <-failures
		if !strings.HasPrefix(err.Error(), "metrics address "+c.Address+": listen on ") || !errors.Is(err, unix.EADDRINUSE) ||
			!strings.Contains(err.Error(), fmt.Sprintf("this process (pid %d) occupies port ", os.Getpid())) {
			t.Errorf("got %v", err)
		}
	}
	other.Close()
	if got := get(t, addressOf(t, s), "/healthz"); got != "ok" {
		t.Errorf("got %q", got)
	}
}

// TestServer_HardFailEndsAtFirstFailure: with HardFail, Run ends at the first failure.
func TestServer_HardFailEndsAtFirstFailure(t *testing.T) {
	var failures []error
	c := on(taken(t).Addr().String())
	c.HardFail = true
	c.Failed = func(err error) { failures = append(failures, err) }
	err := newServer(c).Run(context.Background())
	if !errors.Is(err, unix.EADDRINUSE) || len(failures) != 1 || !errors.Is(failures[0], err) {
		t.Errorf("got %v, reported %v", err, failures)
	}
}

// TestServer_RetriesEveryFiveSeconds: the server retries every five seconds until the context ends.
func TestServer_RetriesEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var tries []time.Duration
		failed := 0
		c := on("0.0.0.0:10256")
		c.Listen = func() (net.Listener, error) {
			tries = append(tries, time.Since(begin))
			return nil, unix.EACCES
		}
		c.Failed = func(err error) {
			if failed++; !strings.Contains(err.Error(), "permission denied") {
				t.Errorf("failed: %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		err := NewServer(c).Run(ctx)
		if err != nil || fmt.Sprint(tries) != "[0s 5s 10s]" || failed != 3 || time.Since(begin) != 12*time.Second {
			t.Errorf("%v: tried at %v, %d failures, ended at %v", err, tries, failed, time.Since(begin))
		}
	})
}

// TestServer_AddressBeingHandedOver: while another process is about to release the address, a failure does not end Run,
// even with HardFail, and retries are frequent; afterwards, a failure ends Run.
func TestServer_AddressBeingHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		tries, listened, failed := 0, 0, 0
		c := on("0.0.0.0:10256")
		c.HardFail = true
		c.Handing = func() bool { return time.Since(begin) < time.Second }
		c.Failed = func(error) { failed++ }
		c.Listening = func(err error) {
			if errors.Is(err, unix.EADDRINUSE) {
				listened++
			}
		}
		c.Listen = func() (net.Listener, error) { tries++; return nil, unix.EADDRINUSE }
		err := NewServer(c).Run(t.Context())
		if !errors.Is(err, unix.EADDRINUSE) || failed != 1 || tries != 11 || listened != tries || time.Since(begin) != time.Second {
			t.Errorf("%v after %v: %d tries, %d reports, %d failures", err, time.Since(begin), tries, listened, failed)
		}
	})
}

// costly is an error whose text takes long to make.
type costly struct{ made *int }

func (e costly) Error() string { *e.made++; return "costly" }

// TestServer_LongHandoverIsCheap: a process on standby, possibly for ever, tries less and less often, and never formats
// the error, which would search for the process that has the address.
func TestServer_LongHandoverIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, made := 0, 0
		c := on("0.0.0.0:10256")
		c.Handing = func() bool { return true }
		c.Listen = func() (net.Listener, error) { tries++; return nil, costly{&made} }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := NewServer(c).Run(ctx); err != nil || made > 0 || tries > 3700 {
			t.Errorf("%v; %d attempts in an hour, %d texts", err, tries, made)
		}
	})
}

// TestServer_AddressTakenOver: the server takes the address as soon as the other process releases it.
func TestServer_AddressTakenOver(t *testing.T) {
	other := taken(t)
	rejected, listens := make(chan error, 1000), make(chan struct{}, 1)
	c := on(other.Addr().String())
	c.HardFail = true
	c.Handing = func() bool { return true }
	c.Failed = func(err error) { t.Errorf("reported %v", err) }
	c.Listening = func(err error) {
		if err != nil {
			rejected <- err
		} else {
			listens <- struct{}{}
		}
	}
	stop := started(t, newServer(c))
	for range 3 {
		<-rejected
	}
	other.Close()
	<-listens
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestServer_ConnectionsBounded: a server limits its connections, to leave descriptors for the process. A further
// client is served, and takes the place of the first one.
func TestServer_ConnectionsBounded(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	most := connectionsMax()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if most != 32 {
		t.Errorf("of 256 descriptors, clients of one server may take %d, want 32", most)
	}
	if huge := connectionsMax(); huge > 2000 || huge < 16 {
		t.Errorf("with %d descriptors: %d connections", before.Cur, huge)
	}

	most = connectionsMax()
	if before.Cur < uint64(3*most) {
		t.Fatalf("%d descriptors are too few for both ends of more connections than a server takes", before.Cur)
	}
	s := newServer(on(anyPort))
	stop := started(t, s)
	address := addressOf(t, s)
	var idle []net.Conn
	for range most {
		idle = append(idle, dialServed(t, address))
	}
	if got := get(t, address, "/proxyMode"); got != "nftables" {
		t.Errorf("connection number %d: %q", most+1, got)
	}
	if !closed(t, idle[0]) || closed(t, idle[1]) {
		t.Errorf("connection number %d did not take the place of the first", most+1)
	}
	for _, conn := range idle {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestServer_UnreadAnswerCut: an answer that the client does not read is ended at the deadline, which frees its memory.
// A profile may take longer, by the requested duration.
func TestServer_UnreadAnswerCut(t *testing.T) {
	c, cut := on(anyPort), make(chan error, 1)
	profiles := c.Handler
	c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/debug/pprof") {
			profiles.ServeHTTP(w, r)
			return
		}
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				cut <- err
				return
			}
		}
	})
	s := newServer(c)
	s.answer = 700 * time.Millisecond
	started(t, s)
	address := addressOf(t, s)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-cut:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Error("the answer is held for a client that does not read")
	}
	if trace := get(t, address, "/debug/pprof/trace?seconds=1"); !strings.HasPrefix(trace, "go 1.") {
		t.Errorf("a profile that takes longer than other answers: %.80q", trace)
	}
}
