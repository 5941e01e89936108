package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// started runs a server until the test ends, and gives a function that stops it and
// gives what Run has returned.
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
	for range 500 {
		if address := s.listening.Load(); address != nil {
			return (*address).String()
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return ""
}

// get may be called from any goroutine.
func get(t *testing.T, address, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

func server(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.retry = 10 * time.Millisecond
	return s
}

func TestServerServesUntilItIsStopped(t *testing.T) {
	inside := 0
	c := site()
	c.Inside = func(f func() error) error { inside++; return f() }
	c.Failed = func(err error) { t.Errorf("failed: %v", err) }
	s := server(t, c)
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
	if inside != 1 {
		t.Errorf("listened %d times in the namespace", inside)
	}
}

func TestRequestsUnderWayAreGivenTheirAnswer(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	c := site()
	c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-finish
		_, _ = io.WriteString(w, "late")
	})
	s := server(t, c)
	stop := started(t, s)
	address := addressOf(t, s)
	got := make(chan string, 1)
	go func() { got <- get(t, address, "/metrics") }()
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	select {
	case <-stopped:
		t.Error("stopped before the answer was given")
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if text := <-got; text != "late" {
		t.Errorf("got %q", text)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// taken is an address that somebody else listens on.
func taken(t *testing.T) net.Listener {
	t.Helper()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return other
}

func TestATakenAddressIsTriedAgain(t *testing.T) {
	other := taken(t)
	failures := make(chan error, 1000)
	c := site()
	c.Address = other.Addr().String()
	c.Failed = func(err error) { failures <- err }
	s := server(t, c)
	started(t, s)
	for range 2 {
		if err := <-failures; !strings.Contains(err.Error(), "metrics address "+c.Address) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("got %v", err)
		}
	}
	other.Close()
	if got := get(t, addressOf(t, s), "/healthz"); got != "ok" {
		t.Errorf("got %q", got)
	}
}

func TestHardFailEndsWithTheFirstFailure(t *testing.T) {
	other := taken(t)
	told := 0
	c := site()
	c.Address, c.HardFail = other.Addr().String(), true
	c.Failed = func(error) { told++ }
	if err := server(t, c).Run(context.Background()); err == nil || told != 1 {
		t.Errorf("got %v, told %d times", err, told)
	}
}

func TestStoppingEndsTheWaitForTheNextTry(t *testing.T) {
	failed := make(chan struct{}, 10)
	c := site()
	c.Inside = func(func() error) error { return errors.New("no such namespace") }
	c.Failed = func(error) { failed <- struct{}{} }
	s := server(t, c)
	s.retry = time.Hour
	stop := started(t, s)
	<-failed
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAnAddressNeedsAPort(t *testing.T) {
	if _, err := New(Config{Address: "127.0.0.1"}); err == nil || !strings.Contains(err.Error(), `metrics address "127.0.0.1"`) {
		t.Errorf("got %v", err)
	}
}

// TestAnAddressThatIsHandedOver is no reason to end, not even with HardFail.
func TestAnAddressThatIsHandedOver(t *testing.T) {
	other := taken(t)
	refused, listens := make(chan error, 1000), make(chan struct{}, 1)
	c := site()
	c.Address, c.HardFail = other.Addr().String(), true
	c.Handing = func() bool { return true }
	c.Failed = func(err error) { t.Errorf("told %v", err) }
	c.Listening = func(err error) {
		if err != nil {
			refused <- err
		} else {
			listens <- struct{}{}
		}
	}
	s := server(t, c)
	stop := started(t, s)
	for range 3 {
		<-refused
	}
	other.Close()
	<-listens
	if err := stop(); err != nil {
		t.Error(err)
	}
}
