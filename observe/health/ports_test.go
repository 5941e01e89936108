// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// quiet is a configuration of Ports at all addresses of a healthy proxy.
var quiet = PortsConfig{
	Healthy:   func() bool { return true },
	NodePorts: func(service.Family) service.NodePortAddresses { return service.NodePortAddresses{All: true} },
	Failed:    func(service.Key, error) {}, Log: zap.NewNop(),
}

// diary notes when something happens, counted from the beginning.
type diary struct {
	begin time.Time
	mu    sync.Mutex
	at    []time.Duration
}

func (d *diary) note() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = append(d.at, time.Since(d.begin))
}

// take returns what was noted since the last call.
func (d *diary) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.at
	d.at = nil
	return at
}

// TestPorts_RetriesBackOff: retries back off to one a minute, and each failure is reported. Retries that a change of
// the Service causes are not reported, and a new port starts from the beginning.
func TestPorts_RetriesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		tried, reported := &diary{begin: begin}, &diary{begin: begin}
		config := quiet
		config.Failed = func(key service.Key, err error) {
			if key.Name != "svc1" || !errors.Is(err, unix.EMFILE) {
				t.Errorf("reported %v %v", key, err)
			}
			reported.note()
		}
		p := NewPorts(config)
		p.listen = func(context.Context, string, string) (net.Listener, error) { tried.note(); return nil, unix.EMFILE }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		expect := func(what string, in *diary, want string) {
			t.Helper()
			synctest.Wait()
			if got := fmt.Sprint(in.take()); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		p.Programmed(context.Background(), service.IPv4, viewOf("svc1", 32000, 1, 1))
		time.Sleep(250 * time.Second)
		expect("reported", reported, "[0s 1s 3s 7s 15s 31s 1m3s 2m3s 3m3s 4m3s]")
		expect("tried", tried, "[0s 1s 3s 7s 15s 31s 1m3s 2m3s 3m3s 4m3s]")
		for range 3 {
			p.Programmed(context.Background(), service.IPv4, viewOf("svc1", 32000, 2, 1))
			time.Sleep(time.Second)
		}
		expect("reported while the Service changes", reported, "[]")
		expect("tried while the Service changes", tried, "[4m10s 4m11s 4m12s]")
		time.Sleep(50 * time.Second)
		expect("reported afterwards", reported, "[5m3s]")
		p.Programmed(context.Background(), service.IPv4, viewOf("svc1", 32001, 2, 1))
		time.Sleep(2 * time.Second)
		expect("reported about a new port", reported, "[5m3s 5m4s]")
		p.Programmed(context.Background(), service.IPv4, viewOf("svc1", 0, 0, 0))
		synctest.Wait()
		tried.take()
		time.Sleep(time.Hour)
		expect("tried when there is no port", tried, "[]")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		p.Programmed(context.Background(), service.IPv4, viewOf("svc1", 32000, 1, 1)) // Run has ended; it must not block
	})
}
