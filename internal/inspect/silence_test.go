// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// listenerSocket makes the test binary a process that listens and never answers.
const listenerSocket = "SLUICE_TEST_LISTENER"

func TestMain(m *testing.M) {
	if path := os.Getenv(listenerSocket); path != "" {
		listener, err := net.Listen("unix", path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		time.Sleep(time.Hour)
		runtime.KeepAlive(listener) // garbage collection closes it
	}
	os.Exit(m.Run())
}

// mute starts a process that listens at a socket and never answers.
func mute(t *testing.T) (socket string, pid int) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), listenerSocket+"="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	testenv.Eventually(t, "listening", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return socket, cmd.Process.Pid
}

// TestClient_SilentProxy: every query to a silent proxy ends, and the error names the process, its state, and that its
// rules remain.
func TestClient_SilentProxy(t *testing.T) {
	socket, pid := mute(t)
	c := NewClient(socket)
	// On a busy machine, a later question may end before it has a connection, which tells the process.
	c.Patience = time.Second
	_, _ = c.Status(t.Context())
	c.Patience = 50 * time.Millisecond
	questions := map[string]func() error{
		"status":    func() error { _, err := c.Status(t.Context()); return err },
		"services":  func() error { _, err := c.Services(t.Context(), ""); return err },
		"endpoints": func() error { _, err := c.Endpoints(t.Context(), "a", "b"); return err },
		"explain":   func() error { _, err := c.Explain(t.Context(), explain.Flow{}); return err },
		"dump":      func() error { return c.Dump(t.Context(), &strings.Builder{}) },
		"gone": func() error {
			_, err := c.Gone(t.Context(), GoneQuery{Wait: time.Millisecond})
			return err
		},
		"observe": func() error {
			return c.Observe(t.Context(), FlowQuery{}, func() {}, func(*FlowEvent) error { return nil })
		},
		"a context that ends first": func() error {
			ctx, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer end()
			_, err := c.Status(ctx)
			return err
		},
		"an interruption": func() error {
			ctx, end := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, end)
			_, err := c.Status(ctx)
			return err
		},
	}
	// A process that sleeps is about to run now and then.
	ask := func(states string) {
		for name, question := range questions {
			err := question()
			silent, is := errors.AsType[*Silent](err)
			if !is || silent.PID != pid || silent.State == "" || !strings.Contains(states, silent.State[:1]) || strings.Contains(err.Error(), "http:") ||
				!strings.Contains(err.Error(), fmt.Sprintf("(PID %d, state %s", pid, silent.State)) || !strings.Contains(err.Error(), "the rules remain applied") {
				t.Errorf("%s, in a state of %s: %v", name, states, err)
			}
		}
	}
	ask("SR")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "stopped", func() bool { return strings.HasPrefix(processState(pid), "T") })
	ask("T")
	if _, err := c.Status(t.Context()); !strings.Contains(err.Error(), "kill -CONT") {
		t.Error(err)
	}
}

// TestClient_AnswerStops: an answer that stops ends with the same error as no answer, and a slow reader does not count
// as silence.
func TestClient_AnswerStops(t *testing.T) {
	hang := make(chan struct{})
	c := servedBy(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(headerAPI, Version)
		_, _ = w.Write([]byte(`{"items":[`))
		_ = http.NewResponseController(w).Flush()
		<-hang
	}))
	t.Cleanup(func() { close(hang) })
	c.Patience = 50 * time.Millisecond
	if _, err := c.Services(t.Context(), ""); !errors.As(err, new(*Silent)) {
		t.Error(err)
	}
	c.Patience = 2 * time.Second // the answer has to begin
	answer, err := c.ask(t.Context(), PathServices, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()        // nothing else is read
	time.Sleep(c.Patience * 13 / 10) // what the reader does
	if n, err := answer.Body.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Error(n, err)
	}
}

// TestClient_QueueFull: a stopped process, which accepts no further connections once its queue is full, is reported as
// silent.
func TestClient_QueueFull(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd) // it is a test's
	path := filepath.Join(t.TempDir(), "s")
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	c := NewClient(path)
	c.Patience = time.Second // for a connection on a busy machine; only the first question waits so long
	for range 4 {
		_, err = c.Status(t.Context())
	}
	if !errors.As(err, new(*Silent)) || !strings.Contains(err.Error(), "wait already") {
		t.Error(err)
	}
}

// TestClient_AllInOneQuestion: the endpoints or details of all Services are one query, whose answer omits Services that
// were removed meanwhile.
func TestClient_AllInOneQuestion(t *testing.T) {
	var asked []string
	h := Handler("v1", &stand{services: 1000}) // which knows the details of the first only
	c := servedBy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		h.ServeHTTP(w, r)
	}))
	endpoints, err := c.AllEndpoints(t.Context(), "")
	if err != nil || len(endpoints) != 1 || endpoints[0].Name != "s00000" {
		t.Errorf("%+v, %v", endpoints, err)
	}
	details, err := c.AllDetails(t.Context(), "ns0")
	if err != nil || len(details) != 1 || details[0].Now.IsZero() {
		t.Errorf("%+v, %v", details, err)
	}
	if details, err = c.AllDetails(t.Context(), "ns1"); err != nil || len(details) != 0 {
		t.Errorf("%+v, %v", details, err)
	}
	if len(asked) != 3 {
		t.Errorf("asked %v", asked)
	}
}

// TestClient_RepeatSharesLimit: a query and its repetition share one time limit: a proxy that is not ready, and then
// hangs, is named after the client's patience.
func TestClient_RepeatSharesLimit(t *testing.T) {
	hang := make(chan struct{})
	var asked atomic.Int32
	c := servedBy(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > 1 {
			<-hang
		}
		w.Header().Set(headerAPI, Version)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(func() { close(hang) })
	c.Patience = 3 * retryPause // the first answer comes within two thirds of it
	began := time.Now()
	_, err := c.Status(t.Context())
	// With a separate limit, the second question would end a pause later.
	if took := time.Since(began); !errors.As(err, new(*Silent)) || took >= c.Patience+retryPause/2 {
		t.Errorf("%v after %v", err, took)
	}
	c.Patience = retryPause / 2
	asked.Store(0)
	if _, err := c.Status(t.Context()); err == nil || errors.As(err, new(*Silent)) || asked.Load() != 1 {
		t.Errorf("%v: asked %d times although no time is left", err, asked.Load())
	}
}
