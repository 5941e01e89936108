package faults

import (
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// monitor notes when the kernel announces changes of a family's tables, whoever
// makes them.
type monitor struct {
	mu    sync.Mutex
	times []time.Time
}

func newMonitor(t *testing.T, node *netns.Namespace, family service.Family) *monitor {
	t.Helper()
	m := &monitor{}
	var listener *netlink.TableListener
	check(t, node.Do(func() (err error) {
		protocol := service.PerFamily[uint8]{service.IPv4: unix.NFPROTO_IPV4, service.IPv6: unix.NFPROTO_IPV6}[family]
		listener, err = netlink.ListenTables(protocol, 0)
		return err
	}))
	note := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.times = append(m.times, time.Now())
	}
	go func() { _ = listener.Run(t.Context(), func(netlink.Netfilter) { note() }, note) }()
	t.Cleanup(func() { check(t, listener.Close()) })
	return m
}

// first gives the time of the first announcement after a moment, for which it waits.
func (m *monitor) first(t *testing.T, after time.Time) time.Time {
	t.Helper()
	for began := time.Now(); time.Since(began) < eventMax; time.Sleep(time.Millisecond) {
		if at, ok := m.since(after); ok {
			return at
		}
	}
	t.Fatal("the kernel has announced nothing")
	return time.Time{}
}

func (m *monitor) since(after time.Time) (first time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.IndexFunc(m.times, after.Before); at >= 0 {
		return m.times[at], true
	}
	return time.Time{}, false
}
