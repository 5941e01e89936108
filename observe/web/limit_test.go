// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestLimit_ListenerLeavesRoomForOthers: idle connections are limited per listener and in total. A further connection
// replaces the one that has been idle for longest.
func TestLimit_ListenerLeavesRoomForOthers(t *testing.T) {
	limit := newLimit(40, 16) // loopback clients may take all of it
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Answer(w, 200, JSON, nil) })
	var addresses []string
	for range 4 {
		addresses = append(addresses, serveBound(t, limit, handler))
	}
	hold := func(at, count int) (idle []net.Conn) {
		for range count {
			idle = append(idle, dialServed(t, addresses[at]))
		}
		return idle
	}
	first, second, third := hold(0, 16), hold(1, 16), hold(2, 8) // 40 in all
	hold(1, 1)
	if open := stillOpen(t, second); open != 15 || !closed(t, second[0]) {
		t.Errorf("one more at a listener with its share: %d of 16 are still open, want all but the first", open)
	}
	hold(3, 2)
	if open := stillOpen(t, first); open != 14 || !closed(t, first[0]) || !closed(t, first[1]) {
		t.Errorf("two more than there are places: %d of 16 of the first listener are still open, want all but two", open)
	}
	if open := stillOpen(t, third); open != 8 {
		t.Errorf("%d of 8 of the third listener are still open", open)
	}
}

// serveBound serves at a listener of a limit until the test ends.
func serveBound(t *testing.T, limit *Limit, handler http.Handler) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, ended := &http.Server{Handler: handler}, make(chan error, 1)
	bound := limit.Bound(server, listener)
	go func() { ended <- server.Serve(bound) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), closedError(<-ended)); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// closed reports whether the server has closed a connection.
func closed(t *testing.T, conn net.Conn) bool {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func stillOpen(t *testing.T, conns []net.Conn) (open int) {
	t.Helper()
	all := make(chan bool)
	for _, conn := range conns {
		go func() { all <- closed(t, conn) }()
	}
	for range conns {
		if !<-all {
			open++
		}
	}
	return open
}

// TestLimit_ActiveRequestKeepsPlace: a connection with a request in progress is not closed for a new one, which is
// rejected if no connection is idle.
func TestLimit_ActiveRequestKeepsPlace(t *testing.T) {
	begun, finish := make(chan struct{}, 2), make(chan struct{})
	address := serveBound(t, newLimit(2, 2), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-finish
		Answer(w, 200, JSON, nil)
	}))
	send := func() net.Conn {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first, second := send(), send()
	<-begun
	<-begun
	third := send()
	_ = third.SetReadDeadline(time.Now().Add(testenv.Patience))
	if _, err := io.Copy(io.Discard, third); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a third connection has a place")
	}
	close(finish)
	for i, conn := range []net.Conn{first, second} {
		_ = conn.SetReadDeadline(time.Now().Add(testenv.Patience))
		if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200"))); err != nil {
			t.Errorf("request %d was cut: %v", i+1, err)
		}
	}
	fourth := dialServed(t, address)
	if open := stillOpen(t, []net.Conn{first, second}); open != 1 || closed(t, fourth) {
		t.Errorf("afterwards, a new connection does not take the place of an idle one: %d of 2 are open", open)
	}
}

// TestLimit_LoopbackReserve: clients of other hosts never take the last eighth of the places, and loopback clients that
// have more than that give places back.
func TestLimit_LoopbackReserve(t *testing.T) {
	limit := newLimit(16, 16)
	own := &places{most: 16}
	open := map[origin][]*held{}
	one := func(from origin) bool {
		server, client := net.Pipe()
		t.Cleanup(func() { server.Close(); client.Close() })
		h := &held{Conn: server, limit: limit, in: [2]*places{own, &limit.all}, from: from}
		open[from] = append(open[from], h)
		return limit.admit(h)
	}
	many := func(from origin, count int) {
		for range count {
			if !one(from) {
				t.Fatal("rejected although connections are idle")
			}
		}
	}
	want := func(farTaken, nearTaken int) {
		t.Helper()
		if got := limit.all.taken; got != [2]int{farTaken, nearTaken} || own.taken != got {
			t.Errorf("taken: %v of all, %v of the listener, want %v", got, own.taken, [2]int{farTaken, nearTaken})
		}
	}
	many(far, 40)
	want(14, 0)
	many(near, 2)
	want(14, 2)
	for _, h := range open[far] {
		h.busy()
	}
	if one(far) {
		t.Error("a far client has a place of the reserve")
	}
	many(near, 3) // each takes the place of another one
	want(14, 2)
	for _, h := range open[far] {
		h.idle()
	}
	many(near, 100)
	want(0, 16)
	many(far, 1)
	want(1, 15)
	for _, from := range []origin{far, near} {
		for _, h := range open[from] {
			_ = h.Close()
			_ = h.Close() // gives back nothing more
		}
	}
	want(0, 0)
}

// dialServed opens a connection, sees it served, and leaves it idle until the test ends.
func dialServed(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200"))); err != nil {
		t.Fatalf("%s does not answer: %v", address, err)
	}
	return conn
}

func closedError(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// TestLimit_TLS: a connection with TLS counts as busy while its handler runs, as one without TLS does.
func TestLimit_TLS(t *testing.T) {
	lender := httptest.NewTLSServer(nil)
	lender.Close()
	c := on(anyPort)
	c.TLS = &tls.Config{Certificates: lender.TLS.Certificates} // a test
	c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, limited := r.Context().Value(heldKey{}).(*held)
		if !limited || conn.at[0] != nil || r.ProtoMajor != 1 {
			http.Error(w, fmt.Sprintf("limited: %t, by %s", limited, r.Proto), http.StatusInternalServerError)
		}
	})
	s := newServer(c)
	started(t, s)
	answer, err := lender.Client().Get("https://" + addressOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() // the test ends
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Errorf("%s", text)
	}
}
