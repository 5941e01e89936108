package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// quietMonitor judges a node on which all is well.
func quietMonitor(t *testing.T) *Monitor {
	t.Helper()
	m, err := NewMonitor(Config{Domains: func() []Domain { return nil }, Node: func() *service.NodeObject { return fine }})
	must(t, err)
	return m
}

// serve starts a server.
func (w *world) serve(c ServerConfig) (stop func()) {
	w.Helper()
	c.Inside = w.node.Do
	if c.Monitor == nil {
		c.Monitor = quietMonitor(w.T)
	}
	s, err := NewServer(c)
	must(w, err)
	return w.run(s.Run)
}

func TestNewServerRefusesNonsense(t *testing.T) {
	m := quietMonitor(t)
	for _, c := range []ServerConfig{
		{Address: netip.MustParseAddrPort("0.0.0.0:1")},
		{Monitor: m},
		{Monitor: m, Address: netip.MustParseAddrPort("127.0.0.1:0")},
	} {
		if s, err := NewServer(c); err == nil {
			t.Errorf("%+v: got %v", c, s)
		}
	}
}

// TestKernelWhereTheServerListens: the unspecified address of either family
// takes connections of both; any other one only its own.
func TestKernelWhereTheServerListens(t *testing.T) {
	everywhere := []string{"127.0.0.1", own4, "[::1]", "[" + own6 + "]"}
	for address, open := range map[string][]string{
		"0.0.0.0:10256":             everywhere,
		"[::]:10256":                everywhere,
		own4 + ":10256":             {own4},
		"[" + own6 + "]:10256":      {"[" + own6 + "]"},
		"127.0.0.1:10256":           {"127.0.0.1"},
		"[::ffff:192.0.2.10]:10256": {own4},
	} {
		t.Run(address, func(t *testing.T) {
			w := newWorld(t)
			var mu sync.Mutex
			told := map[string]int{}
			w.serve(ServerConfig{Address: netip.MustParseAddrPort(address), Answered: func(path string, code int) {
				mu.Lock()
				defer mu.Unlock()
				told[fmt.Sprint(path, " ", code)]++
			}})
			for _, host := range open {
				a := w.answers("http://"+host+":10256/healthz", 200)
				if a.header.Get("Content-Type") != "application/json" || a.header.Get("X-Content-Type-Options") != "nosniff" ||
					!strings.Contains(a.body, `"nodeEligible":true,"healthy":true`) {
					t.Errorf("%s: %+v", host, a)
				}
				w.answers("http://"+host+":10256/livez", 200)
			}
			for _, host := range everywhere {
				if wanted := strings.Contains(strings.Join(open, " "), host); w.closed(host+":10256") == wanted {
					t.Errorf("%s: open is not %v", host, wanted)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if told["/healthz 200"] != len(open) || told["/livez 200"] != len(open) || len(told) != 2 {
				t.Errorf("told %v", told)
			}
		})
	}
}

func TestKernelHardFail(t *testing.T) {
	w := newWorld(t)
	w.take("tcp", "0.0.0.0:10256")
	var told []error
	s, err := NewServer(ServerConfig{
		Address: netip.MustParseAddrPort("0.0.0.0:10256"), HardFail: true, Monitor: quietMonitor(t),
		Failed: func(err error) { told = append(told, err) }, Inside: w.node.Do,
	})
	must(t, err)
	err = s.Run(t.Context())
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "0.0.0.0:10256") || !strings.Contains(err.Error(), "ss -ltnp") {
		t.Errorf("got %v", err)
	}
	if len(told) != 1 || !errors.Is(told[0], err) {
		t.Errorf("told %v", told)
	}
}

// TestKernelTheServerWaitsForItsPort and takes it once it is free.
func TestKernelTheServerWaitsForItsPort(t *testing.T) {
	w := newWorld(t)
	thief := w.take("tcp", "0.0.0.0:10256")
	core, lines := observer.New(zapcore.ErrorLevel)
	w.serve(ServerConfig{Address: netip.MustParseAddrPort("0.0.0.0:10256"), Log: zap.New(core),
		Failed: func(err error) { t.Errorf("told %v without HardFail", err) }})
	w.eventually("an error is logged", func() bool { return lines.Len() > 0 })
	must(t, thief.Close())
	w.answers("http://127.0.0.1:10256/livez", 200)
}

// TestListeningIsTriedEveryFiveSeconds until the context ends.
func TestListeningIsTriedEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var tries []time.Duration
		core, lines := observer.New(zapcore.DebugLevel)
		s, err := NewServer(ServerConfig{
			Address: netip.MustParseAddrPort("0.0.0.0:10256"), Monitor: quietMonitor(t), Log: zap.New(core),
			Inside: func(func() error) error {
				tries = append(tries, time.Since(begin))
				return unix.EACCES
			},
		})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		must(t, s.Run(ctx))
		if fmt.Sprint(tries) != "[0s 5s 10s]" || time.Since(begin) != 12*time.Second {
			t.Errorf("tried at %v, ended at %v", tries, time.Since(begin))
		}
		if lines.Len() != 3 || lines.All()[0].Level != zapcore.ErrorLevel || !strings.Contains(fmt.Sprint(lines.All()[0].ContextMap()["error"]), "permission denied") {
			t.Errorf("logged %v", lines.All())
		}
	})
}

// TestKernelStoppingLetsAnswersEnd: what is under way is answered, what is idle
// or slow is cut, and the port is free.
func TestKernelStoppingLetsAnswersEnd(t *testing.T) {
	w := newWorld(t)
	asked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	m, err := NewMonitor(Config{Domains: func() []Domain { return nil }, Node: func() *service.NodeObject {
		once.Do(func() { close(asked); <-release })
		return fine
	}})
	must(t, err)
	stop := w.serve(ServerConfig{Address: netip.MustParseAddrPort("127.0.0.1:10256"), Monitor: m})
	w.eventually("it listens", func() bool { return !w.closed("127.0.0.1:10256") })
	slow, err := w.node.DialContext(t.Context(), "tcp", "127.0.0.1:10256")
	must(t, err)
	_, err = io.WriteString(slow, "GET /healthz HTTP/1.1\r\n") // and not a word more
	must(t, err)
	underWay, err := w.node.DialContext(t.Context(), "tcp", "127.0.0.1:10256")
	must(t, err)
	_, err = io.WriteString(underWay, "GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n")
	must(t, err)
	<-asked
	time.AfterFunc(100*time.Millisecond, func() { close(release) })
	stop()
	r, err := http.ReadResponse(bufio.NewReader(underWay), nil)
	must(t, err)
	if r.StatusCode != 200 {
		t.Errorf("got %d", r.StatusCode)
	}
	must(t, slow.SetReadDeadline(time.Now().Add(time.Second)))
	if _, err := slow.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the slow one is still connected: %v", err)
	}
	must(t, errors.Join(r.Body.Close(), underWay.Close(), slow.Close()))
	must(t, w.take("tcp", "127.0.0.1:10256").Close())
}
