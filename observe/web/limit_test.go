package web

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestAListenerLeavesRoomForOthers: idle connections take what they may, at one listener and at all
// of them; the next one is served once there is room.
func TestAListenerLeavesRoomForOthers(t *testing.T) {
	limit := newLimit(40)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Answer(w, 200, JSON, nil) })
	var addresses []string
	for range 4 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server, ended := ProbeServer(handler), make(chan error, 1)
		go func() { ended <- server.Serve(limit.Bound(listener)) }()
		t.Cleanup(func() {
			if err := errors.Join(server.Close(), closedError(<-ended)); err != nil {
				t.Error(err)
			}
		})
		addresses = append(addresses, listener.Addr().String())
	}
	hold := func(at, count int) (idle []net.Conn) {
		for range count {
			conn := dialServed(t, addresses[at])
			idle = append(idle, conn)
		}
		return idle
	}
	waits := func(at int) {
		t.Helper()
		client := http.Client{Timeout: 300 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
		if answer, err := client.Get("http://" + addresses[at]); err == nil {
			answer.Body.Close()
			t.Errorf("listener %d served one more", at)
		}
	}
	first := hold(0, 16)
	waits(0)
	second := hold(1, 16)
	waits(1)
	hold(2, 8) // 40 in all
	waits(2)
	waits(3)
	for _, conn := range append(first, second...) {
		conn.Close()
	}
	for at := range addresses {
		dialServed(t, addresses[at])
	}
}

// dialServed opens a connection, sees it served, and leaves it idle until the test ends.
func dialServed(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
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

// TestClosingEndsTheWaitForASlot: the connection that waited is closed.
func TestClosingEndsTheWaitForASlot(t *testing.T) {
	limit := newLimit(0)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, ended := limit.Bound(inner), make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	conn, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open: %v", err)
	}
}
